"""`result.pkl`, the pickled return of a DI-engine run: kept as a file, read as data.

It was written by a trial, which runs code that is not ours. It is unpickled by a fresh process
with limits, which this module is when it runs as a script: whatever a pickle does to memory or
time happens there. Nothing that it names is loaded, numpy neither: numpy trusts the states
that it unpickles, so its numbers and arrays are read by stand-ins.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import pickle
import resource
import stat
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

MAX_BYTES = 1024 * 1024
"""Of a result that is read. Those of DI-engine have less than a kilobyte."""

MAX_KEPT_BYTES = 64 * 1024 * 1024
MAX_JSON_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 100
MAX_REASON = 200
MEMORY = 512 * 1024 * 1024
CPU_SECONDS = 2
WALL_SECONDS = 60
"""The limits of the process that unpickles; on a busy machine it may have to wait."""


class UnreadableResultError(Exception):
    """The file is not a pickle of plain values."""


def read_result(path: Path) -> Any:
    """Return the value pickled in `path`, with numpy's numbers as Python's.

    Tuples, sets and arrays are lists, keys are text, and bytes are the text of their literal.
    Raises `UnreadableResultError` for anything but plain data, for a file that is too large or
    takes too much to unpickle, and for what is not a file, symbolic links among them.
    """
    data = _read_file(path, MAX_BYTES)
    # Without -I and -S it would import what environment variables and site-packages say.
    command = [sys.executable, "-I", "-S", __file__]
    try:
        done = subprocess.run(command, input=data, capture_output=True, timeout=WALL_SECONDS)
        answer = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        raise UnreadableResultError("it takes too much time or memory to unpickle") from None
    except OSError as error:
        raise UnreadableResultError(f"no process can unpickle it: {error.strerror}") from error
    if "reason" in answer:
        raise UnreadableResultError(answer["reason"])
    return answer["value"]


def keep_result(source: Path, kept: Path) -> None:
    """Copy a trial's result as it is to `kept`, whatever is there already.

    Raises `UnreadableResultError` for what is not a file and for a file of more than
    `MAX_KEPT_BYTES`: a link would be followed by whoever uploads it later.
    """
    from ditk_ray.util.files import replace_file  # which the script cannot import

    replace_file(kept, _read_file(source, MAX_KEPT_BYTES))


def _open(path: str, flags: int) -> int:
    # Without O_NONBLOCK a pipe would wait for its writer.
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _read_file(path: Path, limit: int) -> bytes:
    try:
        with open(path, "rb", opener=_open) as file:
            # What was opened is looked at, since the path may mean another file by now.
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UnreadableResultError("it is not a file")
            data = file.read(limit + 1)  # not by the file's size, which may change meanwhile
    except OSError as error:
        raise UnreadableResultError(f"it cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise UnreadableResultError(f"it is larger than {limit} bytes")
    return data


class _NotPlainError(ValueError):
    """A pickle wants more than plain values and numpy's numbers."""


_FORMATS = {
    **{"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "f2": "e", "f4": "f", "f8": "d"},
    **{"u1": "B", "u2": "H", "u4": "I", "u8": "Q"},
}


class _Dtype:
    """Stands in for `numpy.dtype`: made by its code and then given its byte order."""

    def __init__(self, code: str, *_: Any) -> None:
        if code not in _FORMATS:
            raise _NotPlainError(f"it holds numpy values of type {code}")
        self._format = _FORMATS[code]
        self._order = "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._order = "=" if state[1] == "|" else state[1]

    def numbers(self, count: int, data: Any) -> list[Any]:
        return list(struct.unpack(f"{self._order}{count}{self._format}", data))


class _Array:
    """Stands in for `numpy.ndarray`; its `value` is what `tolist` would return."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, is_fortran, data = state
        if is_fortran or not all(type(size) is int and size > 0 for size in shape[1:]):
            raise _NotPlainError("it holds an array of an unusual layout")
        numbers = dtype.numbers(math.prod(shape), data)
        for size in reversed(shape[1:]):
            numbers = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        self.value = numbers if shape else numbers[0]


def _scalar(dtype: _Dtype, data: Any) -> Any:
    return dtype.numbers(1, data)[0]


def _reconstruct(kind: type[_Array], shape: Any, code: Any) -> _Array:
    return kind()


def _frombuffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    array = _Array()
    array.__setstate__((1, shape, dtype, order == "F", data))
    return array


_STAND_INS: dict[tuple[str, str], Any] = {
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,
}
for _core in ("core", "_core"):  # the latter since numpy 2
    _STAND_INS[f"numpy.{_core}.multiarray", "scalar"] = _scalar
    _STAND_INS[f"numpy.{_core}.multiarray", "_reconstruct"] = _reconstruct
    _STAND_INS[f"numpy.{_core}.numeric", "_frombuffer"] = _frombuffer


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _STAND_INS:
            raise _NotPlainError(f"it wants to load {module}.{name}")
        return _STAND_INS[module, name]


def _plain(value: Any, depth: int = 0) -> Any:
    """Return what was unpickled as JSON has it; what holds itself has no end."""
    if depth > MAX_DEPTH:
        raise _NotPlainError(f"it is nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, dict):
        return {_key(key): _plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item, depth + 1) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return str(bytes(value))
    if isinstance(value, str):  # JSON in UTF-8 has no lone surrogates
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, _Array):
        return value.value
    if value is None or isinstance(value, (int, float)):
        return value
    raise _NotPlainError(f"it holds a bare {type(value).__name__}")


def _key(key: Any) -> str:
    if key is not None and type(key) not in (str, int, float, bool):
        raise _NotPlainError(f"it holds a dict with a key of type {type(key).__name__}")
    return str(_plain(key))


def _answer(data: bytes) -> str:
    try:
        answer = json.dumps({"value": _plain(_Unpickler(io.BytesIO(data)).load())})
        if len(answer) <= MAX_JSON_BYTES:
            return answer
        reason = f"it holds more than {MAX_JSON_BYTES} bytes of text and numbers"
    except MemoryError:
        reason = "it takes too much memory to unpickle"
    except _NotPlainError as error:
        reason = str(error)
    except Exception as error:
        reason = f"it is broken: {type(error).__name__}: {error}"
    # It may quote the pickle: for a terminal it has to be short and without escapes.
    shown = reason if len(reason) <= MAX_REASON else f"{reason[:MAX_REASON]}..."
    return json.dumps({"reason": shown.encode("unicode_escape").decode("ascii")})


if __name__ == "__main__":
    for _limit, _most in (
        (resource.RLIMIT_AS, MEMORY),
        (resource.RLIMIT_CPU, CPU_SECONDS),
        (resource.RLIMIT_CORE, 0),
    ):
        with contextlib.suppress(ValueError):  # it is lower already, or not known (macOS)
            resource.setrlimit(_limit, (_most, _most))
    sys.stdout.write(_answer(sys.stdin.buffer.read()))
    sys.stdout.flush()
    os._exit(0)  # what the pickle built need not be taken apart
