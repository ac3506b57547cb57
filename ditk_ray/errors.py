"""The errors that a caller may want to tell apart.

Every error that is meant for a person derives from `DitkRayError`. Its text
says what is wrong, where, and what to do; the command line prints it without
a traceback and leaves with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class DitkRayError(Exception):
    """The root of all errors raised on purpose."""

    exit_code = 1


@dataclass(frozen=True)
class Problem:
    """One mistake: the place, what is wrong there, and how to mend it."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}"
        return f"{text}\n    {self.hint}" if self.hint else text


class BadConfigError(DitkRayError):
    """The user's input is wrong; nothing was started."""

    exit_code = 2

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[BadConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class DoesNotFitError(DitkRayError):
    """No node can ever hold a trial with the resources asked for."""

    exit_code = 2


class ClusterUnreachableError(DitkRayError):
    """Nothing answers at the address of the Ray cluster, or it refuses us."""

    exit_code = 2


class StoreUnreachableError(DitkRayError):
    """The MLflow store does not answer, or does not take what it is sent."""


class EngineMissingError(DitkRayError):
    """DI-engine is not installed where a trial or a check needs it."""

    exit_code = 2


class MetricMissingError(DitkRayError):
    """The first result of a trial does not hold the metric to optimise."""

    exit_code = 2


class TrialFailedError(DitkRayError):
    """A trial's training raised, died or ended without a score."""


class TrialTimeoutError(TrialFailedError):
    """A trial used up its wall-clock time before its first evaluation."""
