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
import pickle
import random
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ding.data.buffer.deque_buffer_wrapper import DequeBufferWrapper
from ding.model.wrapper.model_wrappers import IModelWrapper
from ding.policy import Policy
from ding.rl_utils.exploration import BaseNoise
from ding.utils import RunningMeanStd
from ding.worker import BaseLearner, BaseSerialCommander
from ding.worker.learner.learner_hook import LoadCkptHook
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from ditk_ray.trial.evaluation_hook import Evaluation

_OWNERS = (Policy, IModelWrapper, BaseNoise, RunningMeanStd, LRScheduler)
_MAX_ELEMENTS = 1_000_000

Values = dict[str, Any]
"""Values by a path of attributes."""

Item = tuple[Any, dict[str, Any]]
"""A transition and what the buffer knows of it."""


class EngineParts:
    """The learner, the collector and the buffer of this process, once there are some.

    `state` and `buffer` are the files to resume from; what is in them is put back at the
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

    def save(self, path: Path, evaluation: Evaluation) -> None:
        """Write what DI-engine's own checkpoint leaves out."""
        state = {
            "train_iter": int(evaluation.metrics["train_iter"]),
            "env_step": getattr(self._collector, "envstep", 0),
            "outcome": evaluation.outcome,
            "best": getattr(evaluation.evaluator, "_max_episode_return", None),
            "policy": self._policy and self._policy.changed(),
            "random": _random_states(),
        }
        write_state(path, state)

    def save_buffer(self, path: Path) -> None:
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


def _after(cls: type, method: str, then: Callable[..., None]) -> None:
    original = getattr(cls, method)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        outcome = original(*args, **kwargs)
        then(*args, **kwargs)
        return outcome

    setattr(cls, method, wrapped)


def _random_states() -> dict[str, Any]:
    return {
        "python": random.getstate(),
        "numpy": np.random.get_state(),
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None,
    }


def _set_random_states(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    np.random.set_state(states["numpy"])
    torch.set_rng_state(states["torch"])
    if states["cuda"] is not None and len(states["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(states["cuda"])


class PolicyState:
    """What a policy has become in training and DI-engine's own checkpoint does not hold.

    That is: the temperature of SAC, counters such as those of a delayed actor or of a target
    network that is replaced now and then, the running mean of PPO's values, noise that
    remembers its last value, and where a schedule of the learning rate stands.

    To be made when the policy has just been: what it holds then came from the config, and only
    what has changed since is kept. A trial that is resumed with other parameters, as in
    population based training, has its own.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._born: Values = {path: _copied(value) for path, value in _values(policy)}
        self._settings = _settings(policy)

    def changed(self) -> dict[str, Values]:
        """Return what has changed, and the optimizers' settings as they were and are."""
        now: Values = {path: _copied(value) for path, value in _values(self._policy)}
        attributes = {
            path: value for path, value in now.items() if not _is_same(value, self._born.get(path))
        }
        settings = {"born": self._settings, "now": _settings(self._policy)}
        return {"attributes": attributes, "settings": settings}

    def put_back(self, saved: Mapping[str, Values]) -> None:
        """Give a policy that was just loaded the values that another one had."""
        for path, value in saved["attributes"].items():
            _set(self._policy, path.split("."), value)
        for name, optimizer in _optimizers(self._policy):
            settings = [saved["settings"][when].get(name, []) for when in ("born", "now")]
            _keep_settings(optimizer, self._settings[name], *settings)


def _values(owner: Any, path: str = "", depth: int = 4) -> Iterator[tuple[str, Any]]:
    for name, value in vars(owner).items():
        if _is_plain(value):
            yield f"{path}{name}", value
        elif isinstance(value, _OWNERS) and depth:
            yield from _values(value, f"{path}{name}.", depth - 1)


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return bool(value.numel() <= _MAX_ELEMENTS)
    if isinstance(value, np.ndarray):
        return value.size <= _MAX_ELEMENTS
    return isinstance(value, (int, float, np.generic)) and not isinstance(value, bool)


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    return value.copy() if isinstance(value, np.ndarray) else value


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and np.array_equal(one, other)


def _set(owner: Any, path: list[str], saved: Any) -> None:
    for name in path[:-1]:
        owner = vars(owner).get(name)
        if not isinstance(owner, _OWNERS):
            return
    current = vars(owner).get(path[-1])
    if isinstance(current, torch.Tensor) and isinstance(saved, torch.Tensor):
        if current.shape == saved.shape:
            current.data.copy_(saved)  # in place: an optimizer knows it by its identity
    elif path[-1] in vars(owner):
        setattr(owner, path[-1], saved)


def _optimizers(policy: Policy) -> list[tuple[str, Optimizer]]:
    return [(name, value) for name, value in vars(policy).items() if isinstance(value, Optimizer)]


def _settings(policy: Policy) -> dict[str, list[Values]]:
    return {
        name: [
            {key: value for key, value in group.items() if key != "params"}
            for group in optimizer.param_groups
        ]
        for name, optimizer in _optimizers(policy)
    }


def _keep_settings(
    optimizer: Optimizer, own: list[Values], born: list[Values], now: list[Values]
) -> None:
    """Undo that an optimizer's state brings along the settings of the trial it is from.

    A learning rate that a schedule has changed is changed by as much here.
    """
    for group, mine, old, new in zip(optimizer.param_groups, own, born, now, strict=False):
        for key, value in mine.items():
            if old.get(key) == new.get(key):
                group[key] = value
            elif key == "lr" and old["lr"]:
                group[key] = value * new["lr"] / old["lr"]


def buffer_items(buffer: Any) -> list[Item]:
    """Return what a buffer of DI-engine's holds, oldest first.

    Data is moved rather than a buffer's inner state: a trial may be resumed with a buffer of
    another size, and each kind of buffer finds its own place for what it is given.
    """
    if isinstance(buffer, DequeBufferWrapper):
        return [
            (each.data, {"priority": each.meta["priority"]} if "priority" in each.meta else {})
            for each in buffer.buffer.storage
        ]
    state = buffer.state_dict()
    data, tail = state["data"], state["tail"]
    return [(item, {}) for item in [*data[tail:], *data[:tail]] if item is not None]


def fill_buffer(buffer: Any, items: list[Item]) -> None:
    """Push what another buffer held; of more than it takes, the newest stays."""
    if isinstance(buffer, DequeBufferWrapper):
        for data, meta in items:
            buffer.buffer.push(data, meta=dict(meta))
    else:
        buffer.push([data for data, _ in items[-buffer.replay_buffer_size :]], 0)


class _Pickler(pickle.Pickler):
    """Pickles tensors as arrays: torch's own way takes a hundred times as long.

    A replay buffer has some tensors for each transition.
    """

    def reducer_override(self, value: Any) -> Any:
        if type(value) is not torch.Tensor:
            return NotImplemented
        try:
            return torch.from_numpy, (value.numpy(),)
        except (RuntimeError, TypeError):  # it is more than an array
            return NotImplemented


def write_state(path: Path, value: Any) -> None:
    """Write a value; raises OSError if there is no room."""
    with path.open("wb") as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)


def read_state(path: Path) -> Any:
    with path.open("rb") as file:
        return pickle.load(file)
