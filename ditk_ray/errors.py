"""The errors that a caller may want to distinguish.

Every error that is meant for a person derives from `DitkRayError`. Its text
says what is wrong, where, and what to do; the command line prints it without
a traceback and exits with `exit_code`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class DitkRayError(Exception):
    """The root of all errors raised on purpose."""

    exit_code = 1

    def __init_subclass__(cls, exit_code: int | None = None) -> None:
        if exit_code is not None:
            cls.exit_code = exit_code

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""  # what follows is for programs


@dataclass(frozen=True)
class Problem:
    """One mistake: the place, what is wrong there, and how to mend it."""

    where: str
    what: str
    hint: str = ""

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}"
        return f"{text}\n    {self.hint}" if self.hint else text


class BadConfigError(DitkRayError, exit_code=2):
    """The user's input is wrong; nothing was started."""

    def __init__(self, problems: Problem | Iterable[Problem]) -> None:
        self.problems = (problems,) if isinstance(problems, Problem) else tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[BadConfigError], tuple[tuple[Problem, ...]]]:
        return type(self), (self.problems,)


class NothingLeftError(BadConfigError):
    """A sweep that is to be resumed has nothing left to do."""


class DoesNotFitError(DitkRayError, exit_code=2):
    """No node can ever hold a trial with the resources asked for."""


class ClusterUnreachableError(DitkRayError, exit_code=2):
    """Nothing answers at the address of the Ray cluster, or it refuses the connection."""


class JobRefusedError(DitkRayError):
    """A Ray cluster refuses what its job API was asked; `status` is the HTTP status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message, status)
        self.status = status


class StoreUnreachableError(DitkRayError):
    """The MLflow store does not answer, or does not accept what it is sent."""


class EngineMissingError(DitkRayError, exit_code=2):
    """DI-engine is not installed where a trial or a check needs it."""


class MetricMissingError(DitkRayError, exit_code=2):
    """The first result of a trial does not hold the metric to optimise."""


class TrialFailedError(DitkRayError):
    """An attempt of a trial raised, died or ended without a score.

    `kind` is a `FailureKind`, and `log` the file that says more.
    """

    def __init__(self, message: str, kind: str = "bug", log: str | None = None) -> None:
        super().__init__(message, kind, log)
        self.kind = kind
        self.log = log

    def __str__(self) -> str:
        message = str(self.args[0])
        return f"{message} [log: {self.log}]" if self.log else message


class TrialTimeoutError(TrialFailedError):
    """A trial used up its wall-clock time before its first evaluation."""


class OutOfReachError(DitkRayError):
    """What a trial's jobs are reached through is gone; they may well still run."""


class NeedsMemoryError(DitkRayError):
    """A trial ran out of memory, and may be tried again with `memory` bytes."""

    def __init__(self, message: str, memory: int) -> None:
        super().__init__(message, memory)
        self.memory = memory


class KubeError(DitkRayError):
    """Kubernetes did not do what it was asked; `status` is the HTTP status, if one came."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message, status)
        self.status = status


class KubeUnreachableError(KubeError, exit_code=2):
    """The API server does not answer, or cannot serve just now: trying again may help."""


class KubeForbiddenError(KubeError, exit_code=2):
    """Authentication failed, or this account lacks a permission."""


class KubeNotFoundError(KubeError):
    """The object or its namespace is not there."""


class KubeUnknownKindError(KubeError):
    """The cluster has no such kind of objects: it says nothing of a single one."""


class KubeConflictError(KubeError):
    """There is such an object already, or it was changed meanwhile."""

    def __init__(
        self, message: str, status: int | None = None, is_there_already: bool = False
    ) -> None:
        super().__init__(message, status)
        self.args = (message, status, is_there_already)
        self.is_there_already = is_there_already


class KubeRefusedError(KubeError, exit_code=2):
    """The API server finds what it was sent invalid."""


class KubeExpiredError(KubeError):
    """The history that was asked for is gone: list again."""


def first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0] or type(error).__name__
