"""Reading a trial's pickled return as data, never as code."""

from __future__ import annotations

import builtins
import contextlib
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ditk_ray.trial import result
from ditk_ray.trial.result import UnreadableResultError, keep_result, read_result
from tests.processes import PATIENCE


def pickled(folder: Path, value: Any, protocol: int = pickle.HIGHEST_PROTOCOL) -> Path:
    path = folder / "result.pkl"
    path.write_bytes(pickle.dumps(value, protocol))
    return path


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 2.5, "text", [1, [2]], {"a": {"b": [1, None]}}, 10**30, {}],
    ids=repr,
)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_plain_values_are_read(tmp_path, value, protocol):
    assert read_result(pickled(tmp_path, value, protocol)) == value


def test_bytes_are_read_as_the_text_of_their_literal(tmp_path):
    assert read_result(pickled(tmp_path, b"bytes")) == "b'bytes'"


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(1.5), 1.5),
        (np.float32(0.5), 0.5),
        (np.int64(3), 3),
        (np.bool_(True), True),
        (np.array([1, 2]), [1, 2]),
        (np.zeros((2, 2)), [[0.0, 0.0], [0.0, 0.0]]),
        (np.array(7.0), 7.0),
        ({"eval_value": np.float64(2), "steps": [np.int32(1)]}, {"eval_value": 2.0, "steps": [1]}),
    ],
    ids=str,
)
@pytest.mark.parametrize("protocol", [pickle.DEFAULT_PROTOCOL, pickle.HIGHEST_PROTOCOL])
def test_numpys_numbers_become_pythons(tmp_path, value, plain, protocol):
    read = read_result(pickled(tmp_path, value, protocol))

    assert read == plain
    assert type(read) is type(plain)


def test_tuples_and_sets_become_lists_and_keys_become_text(tmp_path):
    assert read_result(pickled(tmp_path, {1: (2, 3), "s": {4}})) == {"1": [2, 3], "s": [4]}


class Calls:
    """Pickles as a call of `function`."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> Any:
        return self.call


def attacks(marker: Path) -> dict[str, Any]:
    shell = f"touch {marker}"
    code = f"open({str(marker)!r}, 'w').close()"
    return {
        "os.system": Calls(os.system, shell),
        "builtins.eval": Calls(builtins.eval, code),
        "builtins.exec": Calls(builtins.exec, code),
        "subprocess": Calls(subprocess.call, ["touch", str(marker)]),
        "open": Calls(open, str(marker), "w"),
        "getattr": Calls(getattr, Calls(__import__, "os"), "system"),
        "in a list": [1, {"deep": (Calls(os.system, shell),)}],
        "as a key": {Calls(os.system, shell): 1},
        "as an argument": Calls(np.dtype, Calls(os.system, shell)),
        "in an array": np.array([Calls(os.system, shell)], dtype=object),
    }


@pytest.mark.parametrize("name", attacks(Path("x")))
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_code_is_refused_and_not_run(tmp_path, name, protocol):
    marker = tmp_path / "was_run"
    path = pickled(tmp_path, attacks(marker)[name], protocol)

    with pytest.raises(UnreadableResultError, match=r"it wants to load|numpy values of type O8"):
        read_result(path)

    assert not marker.exists()


def test_the_attacks_are_real(tmp_path):
    marker = tmp_path / "was_run"

    pickle.loads(pickle.dumps(attacks(marker)["in a list"]))

    assert marker.exists()


@pytest.mark.parametrize(
    "body",
    [
        b"cnumpy\ndtype.__class__.__base__\n.",
        b"\x80\x04\x8c\x05numpy\x8c\x0edtype.__base__\x93.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"cos\nsystem\n(S'true'\ntR.",
    ],
)
def test_a_pickle_made_by_hand_cannot_reach_other_names(tmp_path, body):
    path = tmp_path / "result.pkl"
    path.write_bytes(body)

    with pytest.raises(UnreadableResultError, match="it wants to load"):
        read_result(path)


def test_a_value_of_another_class_is_refused_by_name(tmp_path):
    with pytest.raises(UnreadableResultError, match=r"collections\.OrderedDict"):
        read_result(pickled(tmp_path, OrderedDict(a=1)))


@pytest.mark.parametrize("body", [b"", b"not a pickle", pickle.dumps([1, 2])[:-3], b"\x80\xff."])
def test_a_broken_pickle_is_refused(tmp_path, body):
    path = tmp_path / "result.pkl"
    path.write_bytes(body)

    with pytest.raises(UnreadableResultError):
        read_result(path)


def test_a_symbolic_link_is_refused(tmp_path):
    link = tmp_path / "link.pkl"
    link.symlink_to(pickled(tmp_path, 1))

    with pytest.raises(UnreadableResultError, match="symbolic links"):
        read_result(link)


@pytest.mark.parametrize("make", [Path.mkdir, lambda path: None], ids=["a folder", "nothing"])
def test_what_is_no_file_is_refused(tmp_path, make):
    make(tmp_path / "result.pkl")

    with pytest.raises(UnreadableResultError):
        read_result(tmp_path / "result.pkl")


def test_a_file_that_is_too_large_is_refused_without_being_read(tmp_path):
    path = tmp_path / "result.pkl"
    with path.open("wb") as file:
        file.truncate(result.MAX_BYTES + 1)

    with pytest.raises(UnreadableResultError, match="larger than"):
        read_result(path)


def test_a_file_that_fits_into_no_memory_is_refused(tmp_path):
    path = tmp_path / "result.pkl"
    with path.open("wb") as file:
        file.truncate(2**36)

    assert refused_in_time(path)


def test_a_file_that_says_it_is_empty_is_read_up_to_the_limit():
    endless = Path("/proc/kallsyms")
    if not endless.is_file() or endless.stat().st_size:
        pytest.skip("this kernel has no such file")

    with pytest.raises(UnreadableResultError, match="larger than"):
        read_result(endless)


def test_a_file_that_may_not_be_read_is_refused(tmp_path):
    mem = Path("/proc/self/mem")  # opens, and fails when it is read

    with pytest.raises(UnreadableResultError, match="cannot be read"):
        read_result(mem)


def test_nothing_is_left_open(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    before = set(Path("/proc/self/fd").iterdir())

    for path in (pickled(tmp_path, 1), tmp_path, tmp_path / "pipe"):
        with contextlib.suppress(UnreadableResultError):
            read_result(path)

    assert set(Path("/proc/self/fd").iterdir()) <= before


def test_a_reason_that_quotes_the_pickle_is_short_and_harmless_on_a_terminal(tmp_path):
    name = "\x1b[2J\n" + "x" * 5000
    path = tmp_path / "result.pkl"
    path.write_bytes(b"\x80\x04\x8c\x02os" + pickle.dumps(name, 4)[11:-2] + b"\x93.")

    with pytest.raises(UnreadableResultError, match="it wants to load os") as caught:
        read_result(path)

    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 300


def test_a_file_of_exactly_the_largest_size_is_read(tmp_path):
    around = len(pickle.dumps(b"x" * 100_000)) - 100_000
    path = pickled(tmp_path, b"x" * (result.MAX_BYTES - around), pickle.DEFAULT_PROTOCOL)
    assert path.stat().st_size == result.MAX_BYTES

    assert len(read_result(path)) == len("b''") + result.MAX_BYTES - around


def refused_in_time(path: Path) -> bool:
    """Read in another process, which may hang or grow but not for long."""
    code = (
        "import pathlib, resource, sys\n"
        "from ditk_ray.trial.result import UnreadableResultError, read_result\n"
        "resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))\n"
        "try:\n    read_result(pathlib.Path(sys.argv[1]))\n"
        "except UnreadableResultError as error:\n    print('refused:', error)\n"
    )
    try:
        done = subprocess.run(
            [sys.executable, "-c", code, path],
            env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=20 * PATIENCE,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.stdout.startswith("refused") and "MemoryError" not in done.stdout


def test_a_pipe_in_place_of_the_file_is_refused_and_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "result.pkl")

    assert refused_in_time(tmp_path / "result.pkl")


def test_a_result_is_kept_byte_by_byte_whatever_it_holds(tmp_path):
    hostile = pickle.dumps(Calls(os.system, f"touch {tmp_path / 'was_run'}"))
    (tmp_path / "result.pkl").write_bytes(hostile)
    kept = tmp_path / "kept.pkl"

    keep_result(tmp_path / "result.pkl", kept)

    assert kept.read_bytes() == hostile
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept.pkl", "result.pkl"]


def test_an_older_result_is_replaced_and_not_written_through(tmp_path):
    other = tmp_path / "other"
    other.write_text("mine")
    kept = tmp_path / "kept.pkl"
    kept.symlink_to(other)
    (tmp_path / ".kept.pkl.new").symlink_to(other)

    keep_result(pickled(tmp_path, 1), kept)

    assert read_result(kept) == 1
    assert other.read_text() == "mine"


def make_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def make_large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(result.MAX_KEPT_BYTES + 1)


@pytest.mark.parametrize(
    "make",
    [make_link, os.mkfifo, Path.mkdir, make_large, lambda path: None],
    ids=["a link", "a pipe", "a folder", "too large", "nothing"],
)
def test_what_is_no_file_or_too_large_is_not_kept(tmp_path, make):
    make(tmp_path / "result.pkl")

    with pytest.raises(UnreadableResultError):
        keep_result(tmp_path / "result.pkl", tmp_path / "kept.pkl")

    assert not os.path.lexists(tmp_path / "kept.pkl")
