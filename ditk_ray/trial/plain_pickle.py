"""Pickles of plain values and numpy's numbers, read without running anything.

Python's own unpickler is no ground to build on here, even if it may load no name: a
pickle of a few bytes makes it reserve gigabytes for its memo, or hash nested tuples
for years. So the instructions are followed here. None of them calls or imports
anything: what a pickle wants of numpy is recognised by name, see `pickled_numpy`.
"""

from __future__ import annotations

import pickle
import pickletools
from collections.abc import Callable, Sequence
from typing import Any

from ditk_ray.trial.pickled_numpy import (
    NUMPY_NAMES,
    NotPlainError,
    NumpyPart,
    PickledArray,
    PickledDtype,
    of_type,
    unpickled_number,
)

MAX_VALUES = 100_000
MAX_CHARACTERS = 4 * 1024 * 1024
MAX_DEPTH = 100
MAX_BITS = 1024
"""Of an integer. Python writes none with more than 4,300 digits as text, so as JSON."""

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False, "EMPTY_TUPLE": ()}
_LITERALS = {
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"),
    *("SHORT_BINBYTES", "BINBYTES", "BINBYTES8", "BYTEARRAY8"),
}
_WITHOUT_EFFECT = {"FRAME", "STOP"}
_CALLABLE: dict[NumpyPart, Callable[..., Any]] = {
    NumpyPart.DTYPE: PickledDtype,
    NumpyPart.SCALAR: unpickled_number,
    NumpyPart.RECONSTRUCT: PickledArray.reconstruct,
    NumpyPart.FROM_BUFFER: PickledArray.from_buffer,
}


def read_plain_pickle(data: bytes) -> Any:
    """Return the pickled value as Python's own: dicts with text keys, lists, text, numbers.

    Tuples and sets become lists. Raises `NotPlainError` for a pickle that wants
    anything else or unfolds beyond the limits above, and other exceptions for one
    that is broken. Time and memory are in proportion to the length of `data`.
    """
    return _Unfolding().of(_Instructions(len(data)).follow(data))


class _Instructions:
    """Follows a pickle's instructions.

    Nothing but text and small numbers is ever hashed, and nothing is unfolded:
    sets are lists, keys are text, and arrays are descriptions.
    """

    def __init__(self, max_memo: int) -> None:
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []
        self._memo: dict[int, Any] = {}
        self._max_memo = max_memo

    def follow(self, data: bytes) -> Any:
        """Return the value that the last instruction leaves."""
        for opcode, argument, _ in pickletools.genops(data):
            name = opcode.name
            if name in _LITERALS:
                self._stack.append(_checked_literal(argument))
            elif name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _STEPS:
                _STEPS[name](self, argument)
            elif name not in _WITHOUT_EFFECT:
                raise NotPlainError(f"it holds the instruction {name}")
        return self._stack.pop()

    def check_protocol(self, protocol: int) -> None:
        if protocol > pickle.HIGHEST_PROTOCOL:
            raise NotPlainError(f"it is of protocol {protocol}")

    def mark(self, _: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def since_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def make_list(self, _: Any) -> None:
        self._stack.append([])

    def make_dict(self, _: Any) -> None:
        self._stack.append({})

    def gather_list(self, _: Any) -> None:
        items = self.since_mark()
        self._stack.append(items)

    def gather_tuple(self, _: Any) -> None:
        items = self.since_mark()
        self._stack.append(tuple(items))

    def gather_dict(self, _: Any) -> None:
        items = self.since_mark()
        self._stack.append({})
        self._set(items)

    def take_tuple(self, length: int) -> None:
        items = [self._stack.pop() for _ in range(length)]
        self._stack.append(tuple(reversed(items)))

    def append(self, _: Any) -> None:
        self._extend([self._stack.pop()])

    def append_all(self, _: Any) -> None:
        self._extend(self.since_mark())

    def _extend(self, items: Sequence[Any]) -> None:
        of_type(list, self._stack[-1]).extend(items)

    def set_item(self, _: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def set_items(self, _: Any) -> None:
        self._set(self.since_mark())

    def _set(self, items: Sequence[Any]) -> None:
        target = of_type(dict, self._stack[-1])
        for key, value in zip(items[::2], items[1::2], strict=True):
            if key is not None and type(key) not in (str, int, float, bool):
                raise NotPlainError(f"it holds a dict with a key of type {type(key).__name__}")
            target[str(key)] = value

    def put(self, index: int) -> None:
        if not 0 <= index <= self._max_memo:
            raise NotPlainError("it wants to remember more values than it can hold")
        self._memo[index] = self._stack[-1]

    def memoize(self, _: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, index: int) -> None:
        self._stack.append(self._memo[index])

    def name(self, module_and_name: str) -> None:
        module, _, name = module_and_name.partition(" ")
        self._stack.append(_numpy_part(module, name))

    def name_on_stack(self, _: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        self._stack.append(_numpy_part(of_type(str, module), of_type(str, name)))

    def call(self, _: Any) -> None:
        arguments, part = self._stack.pop(), self._stack.pop()
        if type(part) is not NumpyPart or part not in _CALLABLE:
            raise NotPlainError(f"it wants to call a {type(part).__name__}")
        self._stack.append(_CALLABLE[part](*of_type(tuple, arguments)))

    def set_state(self, _: Any) -> None:
        state = self._stack.pop()
        target = self._stack[-1]
        if type(target) not in (PickledArray, PickledDtype):
            raise NotPlainError(f"it wants to change a {type(target).__name__}")
        target.set_state(*of_type(tuple, state))


_STEPS: dict[str, Callable[[_Instructions, Any], None]] = {
    "PROTO": _Instructions.check_protocol,
    "MARK": _Instructions.mark,
    "EMPTY_LIST": _Instructions.make_list,
    "EMPTY_SET": _Instructions.make_list,
    "EMPTY_DICT": _Instructions.make_dict,
    "LIST": _Instructions.gather_list,
    "FROZENSET": _Instructions.gather_list,
    "TUPLE": _Instructions.gather_tuple,
    "DICT": _Instructions.gather_dict,
    "TUPLE1": lambda self, _: self.take_tuple(1),
    "TUPLE2": lambda self, _: self.take_tuple(2),
    "TUPLE3": lambda self, _: self.take_tuple(3),
    "APPEND": _Instructions.append,
    "APPENDS": _Instructions.append_all,
    "ADDITEMS": _Instructions.append_all,
    "SETITEM": _Instructions.set_item,
    "SETITEMS": _Instructions.set_items,
    "PUT": _Instructions.put,
    "BINPUT": _Instructions.put,
    "LONG_BINPUT": _Instructions.put,
    "MEMOIZE": _Instructions.memoize,
    "GET": _Instructions.get,
    "BINGET": _Instructions.get,
    "LONG_BINGET": _Instructions.get,
    "GLOBAL": _Instructions.name,
    "STACK_GLOBAL": _Instructions.name_on_stack,
    "REDUCE": _Instructions.call,
    "BUILD": _Instructions.set_state,
}


def _numpy_part(module: str, name: str) -> NumpyPart:
    if (module, name) not in NUMPY_NAMES:
        raise NotPlainError(f"it wants to load {module}.{name}")
    return NUMPY_NAMES[module, name]


def _checked_literal(value: Any) -> Any:
    """Return a literal whose text every reader takes; JSON in UTF-8 has no lone surrogates."""
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise NotPlainError(f"it holds an integer of more than {MAX_BITS} bits")
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value


class _Unfolding:
    """Turns what the instructions left into plain values, and counts them.

    A value may be used many times, or hold itself: a small pickle may unfold to
    no end.
    """

    def __init__(self) -> None:
        self._values = MAX_VALUES
        self._characters = MAX_CHARACTERS

    def of(self, value: Any, depth: int = 0) -> Any:
        if depth > MAX_DEPTH:
            raise NotPlainError(f"it is nested deeper than {MAX_DEPTH} levels")
        self._count_values(1)
        if isinstance(value, PickledArray):
            return self._array(value, depth)
        if isinstance(value, dict):
            return {self._text(key): self.of(item, depth + 1) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.of(item, depth + 1) for item in value]
        if isinstance(value, (str, bytes, bytearray)):
            return self._text(value)
        if value is None or isinstance(value, (int, float)):
            return value
        raise NotPlainError(f"it holds a bare {type(value).__name__}")

    def _array(self, array: PickledArray, depth: int) -> Any:
        if array.holds_objects:
            return self.of(array.objects(), depth + 1)
        self._count_values(array.size)
        return array.numbers()

    def _count_values(self, number: int) -> None:
        self._values -= number
        if self._values < 0:
            raise NotPlainError(f"it holds more than {MAX_VALUES} values")

    def _text(self, value: str | bytes | bytearray) -> str | bytes:
        self._characters -= len(value)
        if self._characters < 0:
            raise NotPlainError(f"it holds more than {MAX_CHARACTERS} characters")
        return value if isinstance(value, str) else bytes(value)
