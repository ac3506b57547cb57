"""Pickles made by hand to run code, to grow without end or to crash their reader."""

from __future__ import annotations

import contextlib
import json
import math
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ditk_ray.trial.result import (
    MAX_DEPTH,
    MAX_JSON_BYTES,
    UnreadableResultError,
    read_result,
)
from tests.processes import PATIENCE

MIB = 1024 * 1024

Read = Callable[[bytes], Any]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Return what reads a pickle from a file."""

    def read_data(data: bytes) -> Any:
        (tmp_path / "result.pkl").write_bytes(data)
        return read_result(tmp_path / "result.pkl")

    return read_data


class Reduced:
    """Pickles as whatever its reduction says."""

    def __init__(self, *reduction: Any) -> None:
        self.reduction = reduction

    def __reduce__(self) -> Any:
        return self.reduction


def array_of(state: tuple[Any, ...], kind: Any = np.ndarray) -> bytes:
    """Pickle an array that is told a state of our own."""
    make = np.core.multiarray._reconstruct
    return pickle.dumps(Reduced(make, (kind, (0,), b"b"), state), 4)


def test_what_di_engine_writes_is_read(read: Read) -> None:
    written = {
        "stop": False,
        "env_step": 2048,
        "eval_value": np.mean([np.float32(9.5)]),
        "eval_value_raw": [np.float32(9.5), np.array([10.0], dtype=np.float32)],
        "finish_time": "Mon Jan  5 10:00:00 2026",
    }
    plain = {**written, "eval_value": 9.5, "eval_value_raw": [9.5, [10.0]]}

    assert read(pickle.dumps(written)) == plain


# The same dict, pickled by numpy 2.4 with protocols 4 and 5.
NUMPY_2 = [
    b"\x80\x04\x95\xd1\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\neval_value\x94\x8c\x16numpy._core"
    b".multiarray\x94\x8c\x06scalar\x94\x93\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93\x94\x8c"
    b"\x02f4\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"
    b"\x00t\x94bC\x04\x00\x00\x00?\x94\x86\x94R\x94\x8c\x03raw\x94]\x94(h\x04h\nC\x04\x00\x00"
    b"\x80?\x94\x86\x94R\x94h\x02\x8c\x0c_reconstruct\x94\x93\x94h\x05\x8c\x07ndarray\x94\x93"
    b"\x94K\x00\x85\x94C\x01b\x94\x87\x94R\x94(K\x01K\x01\x85\x94h\n\x89C\x04\x00\x00\x00@\x94t"
    b"\x94beu.",
    b"\x80\x05\x95\xd3\x00\x00\x00\x00\x00\x00\x00}\x94(\x8c\neval_value\x94\x8c\x16numpy._core"
    b".multiarray\x94\x8c\x06scalar\x94\x93\x94\x8c\x05numpy\x94\x8c\x05dtype\x94\x93\x94\x8c"
    b"\x02f4\x94\x89\x88\x87\x94R\x94(K\x03\x8c\x01<\x94NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK"
    b"\x00t\x94bC\x04\x00\x00\x00?\x94\x86\x94R\x94\x8c\x03raw\x94]\x94(h\x04h\nC\x04\x00\x00"
    b"\x80?\x94\x86\x94R\x94\x8c\x13numpy._core.numeric\x94\x8c\x0b_frombuffer\x94\x93\x94(\x96"
    b"\x04\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00@\x94h\nK\x01\x85\x94\x8c\x01C\x94t\x94R\x94"
    b"eu.",
]


@pytest.mark.parametrize("data", NUMPY_2, ids=["protocol 4", "protocol 5"])
def test_what_numpy_2_writes_is_read(read: Read, data: bytes) -> None:
    assert read(data) == {"eval_value": 0.5, "raw": [1.0, [2.0]]}


@pytest.mark.parametrize("protocol", [4, 5])
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.int32).reshape(2, 3),
        np.arange(12).reshape(3, 4)[:, ::2],
        np.array([1, 2], dtype=">u4"),
        np.array([True, False]),
        np.float16([0.5]),
        np.zeros((0, 3)),
        np.array(3),
    ],
    ids=lambda array: f"{array.dtype} {array.shape}",
)
def test_arrays_of_every_layout_are_read_as_numpy_lists_them(
    read: Read, array: Any, protocol: int
) -> None:
    assert read(pickle.dumps(array, protocol)) == array.tolist()


def test_numbers_that_json_has_not_stay_what_they_are(read: Read) -> None:
    nan, infinity = read(pickle.dumps([np.nan, np.float32("inf")]))

    assert math.isnan(nan)
    assert infinity == math.inf


def test_text_that_is_no_unicode_can_be_written_afterwards(read: Read) -> None:
    value = read(pickle.dumps({"a\ud800": "b\udcff"}))

    assert value == {"a\\ud800": "b\\udcff"}
    json.dumps(value, ensure_ascii=False).encode()


@pytest.mark.parametrize("key", [1, 2.5, None, True, np.int64(7), "text"], ids=repr)
def test_keys_become_text(read: Read, key: Any) -> None:
    plain = key.item() if isinstance(key, np.generic) else key

    assert read(pickle.dumps({key: 0})) == {str(plain): 0}


@pytest.mark.parametrize("key", [(1, 2), b"bytes", frozenset([1])], ids=repr)
def test_keys_that_are_no_plain_names_are_refused(read: Read, key: Any) -> None:
    with pytest.raises(UnreadableResultError, match="key of type"):
        read(pickle.dumps({key: 0}))


INSTRUCTIONS = {
    "a name in the registry of extensions": b"\x82\x01.",
    "a persistent id": b"Pabc\n.",
    "a persistent id on the stack": b"NQ.",
    "an instance": b"(ios\nsystem\n.",
    "an object": b"(cnumpy\ndtype\no.",
    "a new object": b"cnumpy\ndtype\n)\x81.",
    "a new object with keywords": b"cnumpy\ndtype\n)}\x92.",
    "a buffer from outside": b"\x97.",
    "a buffer made read-only": b"N\x98.",
}


def test_a_protocol_of_the_future_is_refused(read: Read) -> None:
    with pytest.raises(UnreadableResultError, match="protocol: 6"):
        read(b"\x80\x06N.")


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_instructions_that_plain_values_do_not_need_are_refused(read: Read, name: str) -> None:
    with pytest.raises(UnreadableResultError, match=r"it is broken|it wants to load|a bare"):
        read(INSTRUCTIONS[name])


def raw(kind: str, order: str = "<", *fields: Any) -> Any:
    """Return what pickles as a dtype with a state of our own."""
    state = (3, order, *(fields or (None, None, None)), -1, -1, 0)
    return Reduced(np.dtype, (kind, False, True), state)


LIES = {
    "a shape of terabytes": array_of((1, (10**12,), np.dtype("f8"), False, b"")),
    "rows without end that hold nothing": array_of((1, (10**12, 0), np.dtype("f8"), False, b"")),
    "a negative shape": array_of((1, (-1,), np.dtype("f8"), False, b"12345678")),
    "a shape that is negative twice": array_of((1, (-1, -1), np.dtype("f8"), False, b"12345678")),
    "a shape of floats": array_of((1, (1.0,), np.dtype("f8"), False, b"12345678")),
    "a shape that is a number": array_of((1, 1, np.dtype("f8"), False, b"12345678")),
    "Fortran's order": pickle.dumps(np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    "objects": pickle.dumps(np.array([None, {}], dtype=object)),
    "too few bytes": array_of((1, (2,), np.dtype("f8"), False, b"12345678")),
    "too many bytes": array_of((1, (1,), np.dtype("i1"), False, b"12345678")),
    "bytes for pointers": array_of((1, (1,), np.dtype("O"), False, b"12345678")),
    "a list for numbers": array_of((1, (1,), np.dtype("f8"), False, [1] * 8)),
    "more objects than it has": array_of((1, (3,), np.dtype("O"), False, [1])),
    "another version of the state": array_of(((1,), np.dtype("f8"), False, b"12345678")),
    "another class": array_of((1, (1,), np.dtype("u1"), False, b"1"), np.dtype),
    "an array from a type": pickle.dumps(Reduced(np.ndarray, ((MIB,), "u1"))),
    "fields outside of the item": array_of(
        (1, (1,), raw("V8", "|", None, ("a",), {"a": (np.dtype("f8"), 10**6)}), False, b"12345678")
    ),
    "a number of objects": pickle.dumps(
        Reduced(np.core.multiarray.scalar, (np.dtype("O"), pickle.dumps(1)))
    ),
    "a number of too few bytes": pickle.dumps(
        Reduced(np.core.multiarray.scalar, (np.dtype("f8"), b"1"))
    ),
    "a number without bytes": pickle.dumps(Reduced(np.core.multiarray.scalar, (np.dtype("f8"),))),
    "a type by its class": pickle.dumps(Reduced(np.dtype, (np.ndarray, False, True))),
    "a type from a list": pickle.dumps(Reduced(np.dtype, ([("a", "f8")], False, True))),
    "a type from a text": pickle.dumps(Reduced(np.dtype, ("f8,f8", False, True))),
    "a type of a huge item": pickle.dumps(Reduced(np.dtype, ("V1000000000000", False, True))),
    "pointers by way of the byte order": array_of((1, (1,), raw("f8", "O,"), False, b"1" * 16)),
    "a buffer that is text": pickle.dumps(
        Reduced(np.core.numeric._frombuffer, ("12345678", np.dtype("f8"), (1,), "C"))
    ),
    "a bare type": pickle.dumps(np.dtype("f8")),
    "a bare class": pickle.dumps(np.ndarray),
    "a changed function": b"cnumpy.core.numeric\n_frombuffer\nN}\x8c\x0c__defaults__)s\x86b.",
    "a changed class": b"cnumpy\ndtype\nN}\x8c\x01aNs\x86b.",
    "a changed list": b"]}\x8c\x01aNsb.",
    "a called value": b"]\x29R.",
    "arguments that are no tuple": b"cnumpy\ndtype\n]R.",
    "an array of structures": pickle.dumps(np.zeros(1, dtype=[("a", "f8")])),
    "an array of dates": pickle.dumps(np.zeros(1, dtype="M8[ns]")),
    "an array of complex numbers": pickle.dumps(np.zeros(1, dtype=complex)),
}


@pytest.mark.parametrize("name", LIES)
def test_numpy_is_not_given_what_is_not_a_plain_number(read: Read, name: str) -> None:
    with pytest.raises(UnreadableResultError) as caught:
        read(LIES[name])

    assert "too much" not in str(caught.value)


def of_length(value: int, size: int = 8) -> bytes:
    return struct.pack("<Q", value)[:size]


def doubled(levels: int) -> bytes:
    """Return instructions for a tuple that holds one twice that holds one twice, and so on."""
    return b")\x94" + b"".join(b"h%c\x86\x94" % level for level in range(levels))


def colliding_keys(count: int) -> bytes:
    """Return instructions for a dict whose keys are numbers of the same hash."""
    numbers = ((number * (2**61 - 1)).to_bytes(11, "little") for number in range(1, count + 1))
    return b"}(" + b"".join(b"\x8a\x0b" + number + b"N" for number in numbers) + b"u."


def array_in_itself() -> Any:
    array = np.array([None], dtype=object)
    array[0] = array
    return array


LONG = "a" * (MIB // 2)

REAL_BOMBS = {
    "a place in the memo far away": b"]r\xff\xff\xff\x7f.",
    "a place in the memo far away, in text": b"]p2147483647\n.",
    "a key that takes years to hash": b"}" + doubled(60) + b"Ns.",
    "a member of a set that takes years to hash": b"\x8f(" + doubled(60) + b"\x90.",
    "an array of terabytes": pickle.dumps(Reduced(np.ndarray, ((2**40,), "u1"))),
    "an array of terabytes, made anew": pickle.dumps(
        Reduced(np.core.multiarray._reconstruct, (np.ndarray, (2**40,), b"b"))
    ),
}
BOMBS = REAL_BOMBS | {
    "a tuple of a tuple twice, and so on": doubled(60) + b".",
    "a list that holds itself twice": b"]\x94(h\x00h\x00e.",
    "a dict that holds itself": b"}\x94\x8c\x01ah\x00s.",
    "an array that holds itself": pickle.dumps(array_in_itself()),
    "an array used again and again": pickle.dumps([np.zeros(1000)] * 1000),
    "a long text used again and again": pickle.dumps([LONG] * 1000),
    "a long key used again and again": pickle.dumps([{LONG: 0}] * 1000),
    "an integer that says it is huge": b"\x8b\xff\xff\xff\x7f.",
    "an integer that is huge": pickle.dumps(1 << (4 * MIB)),
    "an integer of many digits": b"I" + b"9" * 5000 + b"\n.",
    "bytes that say they are huge": b"\x8e" + of_length(2**40) + b"abc.",
    "a bytearray that says it is huge": b"\x96" + of_length(2**40) + b"abc.",
    "text that says it is huge": b"\x8d" + of_length(2**62) + b"abc.",
    "tuples in tuples": b")" + b"\x85" * 100_000 + b".",
    "lists in lists": b"]" * 50_000 + b"a" * 49_999 + b".",
    "more text than the limit": pickle.dumps(["a" * 1000] * (MAX_JSON_BYTES // 1000)),
    "lists one level too deep": b"]" * (MAX_DEPTH + 2) + b"a" * (MAX_DEPTH + 1) + b".",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_goes_off(read: Read, name: str) -> None:
    with pytest.raises(UnreadableResultError):
        read(BOMBS[name])


@pytest.mark.parametrize("name", REAL_BOMBS)
def test_the_bombs_are_real(name: str) -> None:
    code = (
        "import pickle, resource, sys, time, numpy\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "resource.setrlimit(resource.RLIMIT_CPU, (int(time.process_time()) + 2, -1))\n"
        "pickle.loads(sys.stdin.buffer.read())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=BOMBS[name],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        timeout=60 * PATIENCE,
    )
    assert done.returncode == -signal.SIGXCPU or b"MemoryError" in done.stderr


def test_keys_whose_hashes_collide_cost_no_more_than_the_limit(read: Read) -> None:
    with pytest.raises(UnreadableResultError, match="too much time"):
        read(colliding_keys(70_000))


@pytest.mark.parametrize("instruction", [b"]", b"(", b"}"], ids=["lists", "marks", "dicts"])
def test_a_megabyte_of_one_instruction_is_borne(read: Read, instruction: bytes) -> None:
    with contextlib.suppress(UnreadableResultError):
        assert not read(instruction * (MIB - 1) + b".")


def test_what_is_just_within_the_limits_is_read(read: Read) -> None:
    assert read(b"]" * (MAX_DEPTH + 1) + b"a" * MAX_DEPTH + b".")
    assert len(read(pickle.dumps(["a" * 1000] * (MAX_JSON_BYTES // 1010)))) == 4152
    assert len(read(pickle.dumps(np.zeros(100_000)))) == 100_000


def test_equal_values_in_many_places_are_read(read: Read) -> None:
    row = {"episode_return": np.float64(1), "length": 10}

    assert read(pickle.dumps([row] * 1000)) == [row] * 1000
