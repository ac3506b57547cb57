"""Files with what a training needs to go on: Python's pickles, with tensors as arrays.

A replay buffer has some tensors for each transition. torch's own way to pickle a
tensor takes a hundred times as long as numpy's for an array of that size. The files are
written and read in a trial's own process, which runs the user's code anyway.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if type(value) is torch.Tensor and _is_plain(value):
            return torch.from_numpy, (value.numpy(),)
        return NotImplemented


def _is_plain(tensor: torch.Tensor) -> bool:
    """Say whether an array has all that a tensor is."""
    return (
        tensor.device.type == "cpu"
        and not tensor.requires_grad
        and tensor.layout is torch.strided
        and tensor.dtype is not torch.bfloat16
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def write_state(path: Path, value: Any) -> None:
    """Write a value; raises OSError if there is no room."""
    with path.open("wb") as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)


def read_state(path: Path) -> Any:
    """Return what `write_state` wrote."""
    load: Callable[[Any], Any] = pickle.load
    with path.open("rb") as file:
        return load(file)
