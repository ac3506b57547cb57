from __future__ import annotations

import errno
import json
import signal
import time

import pytest

from ditk_ray.config.terms import DEFAULT_RETRIES, FailureKind
from ditk_ray.execution.process import describe_exit, kind_of_exit, kind_of_message
from ditk_ray.trial.outcome import failure_of, is_divergence
from ditk_ray.trial.reports import HOUR, Failure, FailureLog


class OutOfMemoryError(RuntimeError):
    """As torch names its own."""


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ValueError("no such luck"), "bug"),
        (RuntimeError("shapes do not match"), "bug"),
        (FileNotFoundError(errno.ENOENT, "nothing there"), "bug"),
        (MemoryError(), "out_of_memory"),
        (OutOfMemoryError("CUDA"), "out_of_memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), "out_of_memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), "out_of_memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "out_of_memory"),
        (caused(RuntimeError("Env 0 error"), MemoryError()), "out_of_memory"),
        (OSError(errno.ENOSPC, "No space left on device"), "disk_full"),
        (OSError(errno.EDQUOT, "Disk quota exceeded"), "disk_full"),
        (caused(RuntimeError("save"), OSError(errno.ENOSPC, "full")), "disk_full"),
        (
            caused(RuntimeError("pos"), RuntimeError("basic_ios::clear: iostream error")),
            "disk_full",
        ),
    ],
)
def test_an_exception_tells_what_it_is_of(error, kind):
    assert failure_of(error) == kind


def test_errors_that_cause_each_other_in_a_circle_are_looked_at_once():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert failure_of(one) == "bug"


@pytest.mark.parametrize(
    ("code", "ran_out", "kind"),
    [
        (-signal.SIGKILL, True, "out_of_memory"),
        (-signal.SIGKILL, False, "lost"),
        (-signal.SIGTERM, False, "lost"),
        (-signal.SIGHUP, True, "lost"),
        (-signal.SIGSEGV, True, "bug"),
        (-signal.SIGABRT, False, "bug"),
        (3, False, "bug"),
        (None, False, "lost"),
    ],
)
def test_the_way_a_process_ended_tells_what_it_is_of(code, ran_out, kind):
    assert kind_of_exit(code, ran_out) == kind


def test_a_broken_pipe_is_want_of_memory_if_the_kernel_ended_a_process_for_that():
    assert kind_of_message("bug", "EOFError (connection.py:1)", True) == "out_of_memory"
    assert kind_of_message("bug", "EOFError (connection.py:1)", False) == "bug"
    assert kind_of_message("bug", "ValueError: no (a.py:1)", True) == "bug"


def test_an_exit_is_described_in_words():
    assert "ended by SIGKILL" in describe_exit(-9)
    assert "exited with code 3" in describe_exit(3)
    assert "guard" in describe_exit(None)


def test_only_torchs_complaint_about_nan_is_a_divergence():
    refused = "Expected parameter logits of distribution Categorical to satisfy the constraint "
    refused += "IndependentConstraint(Real(), 1), but found invalid values:\ntensor([[nan, nan]])"
    assert is_divergence(ValueError(refused))
    assert not is_divergence(ValueError("cannot convert float NaN to integer"))


def failed(kind: str, when: float | None = None) -> Failure:
    return Failure(kind, "an error", 0, time=time.time() if when is None else when)


@pytest.mark.parametrize("kind", list(FailureKind))
def test_each_kind_has_its_own_budget(tmp_path, kind):
    log = FailureLog(tmp_path)
    for _ in range(DEFAULT_RETRIES[kind]):
        log.add(failed(kind))
        assert log.allows(kind, DEFAULT_RETRIES)
    log.add(failed(kind))
    assert not log.allows(kind, DEFAULT_RETRIES)
    others = [other for other in FailureKind if other not in (kind, FailureKind.BUG)]
    assert all(log.allows(other, DEFAULT_RETRIES) for other in others)


def test_what_was_lost_is_counted_by_the_hour(tmp_path):
    log = FailureLog(tmp_path)
    for _ in range(100):
        log.add(failed("lost", time.time() - HOUR - 1))
    log.add(failed("lost"))
    assert log.allows("lost", {"lost": 1})


def test_budgets_outlive_the_worker_and_a_line_that_was_cut_short(tmp_path):
    first = FailureLog(tmp_path)
    first.add(failed("stall"))
    first.add(failed("stall"))
    with (tmp_path / "failures.jsonl").open("a") as file:
        file.write(json.dumps(vars(failed("stall")))[:20])
    again = FailureLog(tmp_path)
    assert [item.kind for item in again.failures] == ["stall", "stall"]
    again.add(failed("stall"))
    assert not again.allows("stall", {"stall": 2})
    assert len(FailureLog(tmp_path).failures) == 3
