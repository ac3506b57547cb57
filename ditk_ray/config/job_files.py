"""Finding `JobCfg` classes in files, and loading one."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ditk_ray.config.terms import REPORTERS
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.python_file import load_python_file
from ditk_ray.util.suggest import did_you_mean

if TYPE_CHECKING:
    from ditk_ray.config.job_spec import JobSpec

JOB_FOLDER = "job_cfgs"
_WORDS = {"stopper": ("nan",), "progress_reporter": REPORTERS}
"""What names no class: a display, and the only rule that is a single word."""


@dataclass(frozen=True)
class JobEntry:
    """A `JobCfg` class as its file shows it, without running the file."""

    name: str
    file: Path
    summary: str


def list_jobs(file: Path | None = None) -> list[JobEntry]:
    """Return the job classes of one file, or of all job folders.

    The files are parsed, not run: this takes milliseconds and loads no package.
    """
    return _classes(file) if file else _scan_folders()[0]


def _scan_folders() -> tuple[list[JobEntry], list[Problem]]:
    """Return the jobs of all folders; a file that cannot be read hides no other."""
    entries: list[JobEntry] = []
    problems: list[Problem] = []
    for file in [file for folder in job_folders() for file in sorted(folder.glob("*.py"))]:
        try:
            entries += _classes(file)
        except BadConfigError as error:
            problems += error.problems
    return entries, problems


def job_folders() -> list[Path]:
    """Return where jobs are looked for: the working directory first, then the project."""
    here = Path.cwd() / JOB_FOLDER
    shipped = Path(__file__).resolve().parents[2] / JOB_FOLDER
    return [folder for folder in dict.fromkeys((here, shipped)) if folder.is_dir()]


def load_job(
    cfg_class: str | None, cfg_file: Path | None = None, changes: Mapping[str, Any] | None = None
) -> JobSpec:
    """Load and check the named class; without a file it is looked for in the job folders.

    Raises `BadConfigError`, with similar names, if there is no such class.
    """
    entry = find_job(cfg_class, cfg_file)
    module = load_python_file(entry.file)
    # Pydantic and Ray, without which jobs are listed and found.
    from ditk_ray.config.job_cfg import JobCfg
    from ditk_ray.config.job_spec import check_job

    job = getattr(module, entry.name)
    if not (isinstance(job, type) and issubclass(job, JobCfg)):
        what = "is not a subclass of ditk_ray.JobCfg"
        raise BadConfigError(Problem(f"{entry.file}: {entry.name}", what))
    # Absolute: a trial's config.py names the file, and runs from any folder.
    return check_job(job, _named_parts(module, changes or {}), entry.file.absolute())


def find_job(cfg_class: str | None, cfg_file: Path | None = None) -> JobEntry:
    """Return the one class that is meant, without loading it."""
    known, unreadable = (list_jobs(cfg_file), []) if cfg_file else _scan_folders()
    where = str(cfg_file) if cfg_file else f"{JOB_FOLDER}/"
    if cfg_class is None:
        if cfg_file is not None and len(known) == 1:
            return known[0]
        names = ", ".join(entry.name for entry in known) or "none"
        hint = f"in {where} there are: {names}"
        raise BadConfigError(Problem("--cfg_class", "is needed to say which job", hint))
    for entry in known:
        if entry.name == cfg_class:
            return entry
    if cfg_file is not None and f"\nclass {cfg_class}(".encode() in cfg_file.read_bytes():
        return JobEntry(cfg_class, cfg_file, "")  # its base may be imported under any name
    hint = did_you_mean(cfg_class, [entry.name for entry in known]) or "there is no JobCfg at all"
    missing = Problem(f"--cfg_class {cfg_class}", f"no such class in {where}", hint)
    raise BadConfigError([missing, *unreadable])


def _named_parts(module: ModuleType, changes: Mapping[str, Any]) -> dict[str, Any]:
    result = dict(changes)
    for key, words in _WORDS.items():
        name = result.get(key)
        if isinstance(name, str) and name.isidentifier() and name not in words:
            classes = {k: v for k, v in vars(module).items() if isinstance(v, type)}
            if name not in classes:
                hint = did_you_mean(name, [*classes, *words])
                where = f"--{key} {name}"
                raise BadConfigError(Problem(where, f"no such class in {module.__file__}", hint))
            result[key] = classes[name]
    return result


def _classes(file: Path) -> list[JobEntry]:
    try:
        tree = ast.parse(file.read_bytes(), str(file))  # of bytes, which say their encoding
    except (OSError, SyntaxError, ValueError) as error:
        load_python_file(file)  # raises, with the line or the files that are there
        raise BadConfigError(Problem(str(file), f"cannot be read: {error}")) from error
    jobs: dict[str, JobEntry] = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(_is_job(base, jobs) for base in node.bases):
            summary = (ast.get_docstring(node) or "").partition("\n")[0]
            jobs[node.name] = JobEntry(node.name, file, summary)
    return [entry for name, entry in jobs.items() if not name.startswith("_")]


def _is_job(base: ast.expr, jobs: Mapping[str, JobEntry]) -> bool:
    name = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
    return name in jobs or name.endswith("JobCfg")
