"""What a policy has become in training and DI-engine's own checkpoint does not hold.

That is: the temperature of SAC, counters such as those of a delayed actor or of a target
network that is replaced now and then, the running mean of PPO's values, noise that
remembers its last value, and where a schedule of the learning rate stands.

Kept is what has changed since the policy was made. What has not is the config's
business: a trial that goes on with other parameters, as in population based training,
has its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from ding.model.wrapper.model_wrappers import IModelWrapper
from ding.policy import Policy
from ding.rl_utils.exploration import BaseNoise
from ding.utils import RunningMeanStd
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

_OWNERS = (Policy, IModelWrapper, BaseNoise, RunningMeanStd, LRScheduler)
_MAX_ELEMENTS = 1_000_000

Values = dict[str, Any]
"""Values by a path of attributes."""


class PolicyState:
    """The values that a policy carries along, told apart from those that it was made with.

    To be made when the policy has just been: what it holds then came from the config.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._born = {path: _copied(value) for path, value in _values(policy)}
        self._settings = _settings(policy)

    def changed(self) -> dict[str, Values]:
        """Return what has changed, and the optimizers' settings as they were and are."""
        attributes = {
            path: _copied(value)
            for path, value in _values(self._policy)
            if path not in self._born or not _is_same(value, self._born[path])
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
    """Yield the plain values of a policy and of its parts, with their paths."""
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
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return one.shape == other.shape and bool(torch.equal(one.detach().cpu(), other))
    if isinstance(one, np.ndarray) or isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return type(one) is type(other) and bool(one == other)


def _set(owner: Any, path: list[str], saved: Any) -> None:
    """Set the value at a path; a policy of another make, which lacks it, stays as it is."""
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
    """Return the settings of each optimizer's groups: its learning rate and so on."""
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
    groups = optimizer.param_groups
    if not len(groups) == len(own) == len(born) == len(now):
        return
    for group, mine, old, new in zip(groups, own, born, now, strict=True):
        for key, value in mine.items():
            if old.get(key) == new.get(key):
                group[key] = value
            elif key == "lr" and old["lr"]:
                group[key] = value * new["lr"] / old["lr"]
