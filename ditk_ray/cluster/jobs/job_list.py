"""Several jobs in one call: as words with `---` between the jobs, or as a file of lists."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.yaml_text import read_yaml

SEPARATOR = "---"
_EXPECTED = "a list of argument lists: [[tune, --cfg_class, A], [python, train.py]]"


def split_words(words: Sequence[str], separator: str = SEPARATOR) -> list[list[str]]:
    """Return the argument lists between separators; BadConfigError if one is empty."""
    jobs: list[list[str]] = [[]]
    for word in words:
        if word == separator:
            jobs.append([])
        else:
            jobs[-1].append(word)
    if not all(jobs):
        what = f"there is no command before or after a {separator!r}"
        raise BadConfigError(Problem("JOB", what, f"write A {separator} B for two jobs"))
    return jobs


def read_jobs(path: Path) -> list[list[str]]:
    """Return the argument lists of a YAML or JSON file; BadConfigError names all mistakes."""
    where = f"--jobs {path}"
    try:
        found = read_yaml(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadConfigError(Problem(where, f"cannot be read: {error}")) from error
    if not isinstance(found, list) or not found:
        raise BadConfigError(Problem(where, "holds no list of jobs", f"write {_EXPECTED}"))
    problems = [
        Problem(f"{where}, job {number}", "is no list of words", f"write {_EXPECTED}")
        for number, job in enumerate(found, 1)
        if not _is_command(job)
    ]
    if problems:
        raise BadConfigError(problems)
    return [[str(word) for word in job] for job in found]


def _is_command(job: Any) -> bool:
    """Say whether something is a list of words; numbers may stand for themselves."""
    return (
        isinstance(job, list)
        and bool(job)
        and all(isinstance(word, str | int | float) and not isinstance(word, bool) for word in job)
    )
