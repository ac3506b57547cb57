"""Finding the parts of a DI-engine run, to save and restore what its checkpoint leaves out.

DI-engine's checkpoint holds the networks, the optimizers, `train_iter` and, where the entry
asks for it, the collector's `env_step`, which exploration follows. What is added here: the
policy's other state, the replay buffer on request, the generators of random numbers, and
the last evaluation, so that a restored training does not begin by repeating it.

The entries keep their parts to themselves; they are seen when they are made. This
happens in a process that runs a single trial, so nothing is ever undone.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ding.worker import BaseLearner, BaseSerialCommander
from ding.worker.learner.learner_hook import LoadCkptHook

from ditk_ray.trial.buffer_state import buffer_items, fill_buffer
from ditk_ray.trial.policy_state import PolicyState
from ditk_ray.trial.state_file import read_state, write_state


class EngineParts:
    """The learner, the collector and the buffer of this process, once there are some.

    `state` and `buffer` are the files to go on from; what is in them is put back at the
    moment at which DI-engine loads its own checkpoint, and at its first evaluation.
    """

    def __init__(self, state: Path | None = None, buffer: Path | None = None) -> None:
        self._learner: Any = None
        self._collector: Any = None
        self._buffer: Any = None
        self._policy: PolicyState | None = None
        self._saved: dict[str, Any] | None = read_state(state) if state else None
        self._buffer_file = buffer
        _after(BaseLearner, "__init__", self._see_learner)
        _after(BaseSerialCommander, "__init__", self._see_commander)
        _after(LoadCkptHook, "__call__", self._put_back)

    def recall(self, evaluator: Any, train_iter: int) -> Any:
        """Return the evaluation that was made at the checkpoint, if it is asked for; else None."""
        saved, self._saved = self._saved, None
        if saved is None or saved["train_iter"] != train_iter:
            return None
        if hasattr(evaluator, "_max_episode_return"):
            evaluator._max_episode_return = saved["best"]
        _set_random_states(saved["random"])
        return saved["outcome"]

    def save(self, path: Path, evaluator: Any, train_iter: int, outcome: Any) -> None:
        """Write what DI-engine's own checkpoint leaves out."""
        state = {
            "train_iter": train_iter,
            "env_step": getattr(self._collector, "envstep", 0),
            "outcome": outcome,
            "best": getattr(evaluator, "_max_episode_return", None),
            "policy": self._policy.changed() if self._policy else None,
            "random": _random_states(),
        }
        write_state(path, state)

    def save_buffer(self, path: Path) -> None:
        """Write the replay buffer, if there is one."""
        if self._buffer is not None:
            write_state(path, buffer_items(self._buffer))

    def save_policy(self, path: Path, save: Callable[[str], None]) -> None:
        """Have DI-engine write its own checkpoint to a place of ours.

        It joins the name to its own folder, which an absolute one replaces. When that
        fails, it would use the name again for what it saves next.
        """
        try:
            save(str(path))
        finally:
            if self._learner is not None:
                self._learner.ckpt_name = None

    def _see_learner(self, learner: Any, *_: Any, **__: Any) -> None:
        if self._learner is not None or getattr(learner, "_policy", None) is None:
            return
        self._learner = learner
        policy = getattr(learner.policy.state_dict, "__self__", None)
        self._policy = PolicyState(policy) if policy is not None else None

    def _see_commander(self, commander: Any, *_: Any, **__: Any) -> None:
        if self._collector is None:  # a second one is an expert's
            self._collector = commander._collector
            self._buffer = commander._replay_buffer

    def _put_back(self, hook: Any, learner: Any) -> None:
        if learner is not self._learner or self._saved is None:
            return
        if self._policy is not None and self._saved["policy"] is not None:
            self._policy.put_back(self._saved["policy"])
        if self._collector is not None:
            self._collector.envstep = self._saved["env_step"]
        if self._buffer_file is not None and self._buffer is not None:
            fill_buffer(self._buffer, read_state(self._buffer_file))


def _after(cls: type, method: str, told: Callable[..., None]) -> None:
    """Have `told` called with the same arguments after each call of a method."""
    original = getattr(cls, method)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        outcome = original(*args, **kwargs)
        told(*args, **kwargs)
        return outcome

    setattr(cls, method, wrapped)


def _random_states() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": cuda,
    }


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])
