"""numpy's numbers and arrays as pickles describe them, checked before numpy sees them.

numpy trusts the states that it unpickles: a wrong one makes it reserve memory
without end, or read outside of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from enum import Enum, auto
from itertools import accumulate
from operator import mul
from typing import Any, Literal

import numpy as np

_OBJECTS = "O8"
_NUMBERS = re.compile(r"b1|[iu][1248]|f[248]")
_MAX_DIMENSIONS = 32


class NotPlainError(ValueError):
    """A pickle wants more than plain values and numpy's numbers."""


class NumpyPart(Enum):
    """What a pickle may name of numpy."""

    DTYPE = auto()
    NDARRAY = auto()
    SCALAR = auto()
    RECONSTRUCT = auto()
    FROM_BUFFER = auto()


# `core` became `_core` with numpy 2.
NUMPY_NAMES = {
    ("numpy", "dtype"): NumpyPart.DTYPE,
    ("numpy", "ndarray"): NumpyPart.NDARRAY,
    ("numpy.core.multiarray", "scalar"): NumpyPart.SCALAR,
    ("numpy._core.multiarray", "scalar"): NumpyPart.SCALAR,
    ("numpy.core.multiarray", "_reconstruct"): NumpyPart.RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): NumpyPart.RECONSTRUCT,
    ("numpy.core.numeric", "_frombuffer"): NumpyPart.FROM_BUFFER,
    ("numpy._core.numeric", "_frombuffer"): NumpyPart.FROM_BUFFER,
}


def of_type(kind: type[Any], value: Any) -> Any:
    """Return a value that is of one type exactly; raise `NotPlainError` if it is not."""
    if type(value) is not kind:
        raise NotPlainError(f"it has a {type(value).__name__} where a {kind.__name__} belongs")
    return value


class PickledDtype:
    """The type of an array's items, made by its code and then told its byte order."""

    def __init__(self, code: Any, align: Any = False, copy: Any = False) -> None:
        if of_type(str, code) != _OBJECTS and not _NUMBERS.fullmatch(code):
            raise NotPlainError(f"it holds numpy values of type {code}")
        self._code = code
        self._order = "="

    def set_state(self, version: Any, order: Any, *rest: Any) -> None:
        """Take the byte order; refuse sub-arrays and fields, which are the next three."""
        if of_type(str, order) not in ("<", ">", "|", "=") or rest[:3] != (None, None, None):
            raise NotPlainError("it holds numpy values of a type with fields")
        self._order = order

    @property
    def holds_objects(self) -> bool:
        """Whether items are Python values and not numbers."""
        return bool(self._code == _OBJECTS)

    def numbers(self) -> np.dtype[Any]:
        """Return numpy's own type."""
        if self.holds_objects:
            raise NotPlainError("it holds Python objects in place of numpy's numbers")
        return np.dtype(self._order + self._code)


class PickledArray:
    """An array, known by its description; nothing is unfolded before it is asked for."""

    def __init__(self, dtype: Any, shape: Any, data: Any, order: Any = "C") -> None:
        self._dtype: PickledDtype = of_type(PickledDtype, dtype)
        self._shape = _checked_shape(shape)
        self._data = data
        self._order: Literal["C", "F"] = "F" if of_type(str, order) == "F" else "C"

    @classmethod
    def reconstruct(cls, kind: Any, shape: Any, code: Any) -> PickledArray:
        """Do what `_reconstruct` does: make an array that is to be told its state."""
        if kind is not NumpyPart.NDARRAY or shape != (0,):
            raise NotPlainError("it makes an array as numpy does not")
        return cls(PickledDtype("u1"), (0,), b"")

    @classmethod
    def from_buffer(cls, data: Any, dtype: Any, shape: Any, order: Any) -> PickledArray:
        """Do what `_frombuffer` does."""
        return cls(dtype, shape, data, order)

    def set_state(self, version: Any, shape: Any, dtype: Any, is_fortran: Any, data: Any) -> None:
        """Take everything that `_reconstruct` did not tell."""
        PickledArray.__init__(self, dtype, shape, data, "F" if of_type(bool, is_fortran) else "C")

    @property
    def holds_objects(self) -> bool:
        """Whether its items may be anything, and not only numbers."""
        return self._dtype.holds_objects

    @property
    def size(self) -> int:
        """How many values it unfolds to: its items, and the lists that hold them."""
        return sum(accumulate(self._shape, mul))

    def numbers(self) -> Any:
        """Return an array of numbers as nested lists."""
        kind = self._dtype.numbers()
        raw = _raw(self._data, math.prod(self._shape) * kind.itemsize)
        return np.ndarray(self._shape, kind, raw, order=self._order).tolist()

    def objects(self) -> Any:
        """Return the items of an array of objects, as the pickle gives them."""
        items = of_type(list, self._data)
        if self._shape != (len(items),):
            raise NotPlainError("it holds an array of objects that is no simple row")
        return items


def unpickled_number(dtype: Any, raw: Any) -> Any:
    """Do what `scalar` does, and return Python's number."""
    kind = of_type(PickledDtype, dtype).numbers()
    return np.ndarray((), kind, _raw(raw, kind.itemsize)).item()


def _checked_shape(shape: Any) -> tuple[int, ...]:
    sizes: Sequence[Any] = of_type(tuple, shape)
    if len(sizes) > _MAX_DIMENSIONS or any(of_type(int, size) < 0 for size in sizes):
        raise NotPlainError("it holds an array of an impossible shape")
    return tuple(sizes)


def _raw(data: Any, length: int) -> bytes:
    if type(data) not in (bytes, bytearray) or len(data) != length:
        raise NotPlainError("it holds numpy values whose size is not that of their bytes")
    return bytes(data)
