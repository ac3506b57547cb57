"""`JobSpec`: a `JobCfg` that was checked, as one frozen value."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveFloat,
    ValidationError,
    field_validator,
)
from pydantic.dataclasses import dataclass as checked_dataclass
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from ditk_ray.config.checked import problems_of
from ditk_ray.config.config_file import has_main_block
from ditk_ray.config.engine_config import (
    MAIN_ENTRY,
    EngineConfig,
    entry_function_name,
    find_beside,
    load_engine_config,
)
from ditk_ray.config.job_cfg import JobCfg
from ditk_ray.config.resources import TrialResources, parse_resources
from ditk_ray.config.space import SearchSpace, build_space
from ditk_ray.config.terms import REPORTERS, Mode, Objective, parse_objectives, parse_retries
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.util.suggest import did_you_mean
from ditk_ray.util.units import parse_seconds


def _known_reporter(given: Any) -> Any:
    if isinstance(given, str) and given not in REPORTERS:
        raise ValueError(f"it is {given!r}; {did_you_mean(given, REPORTERS)}")
    return given


def _seeds(given: Any) -> tuple[Any, ...]:
    seeds = range(given) if type(given) is int else given
    if not isinstance(seeds, (list, tuple, range)):
        raise ValueError(f"it is {given!r}; it has to be a number of seeds or a list of them")
    if not seeds:
        raise ValueError("at least one seed is needed")
    if any(seed in seeds[:index] for index, seed in enumerate(seeds)):
        raise ValueError("a seed is listed twice")
    return tuple(seeds)


Seconds = Annotated[PositiveFloat, BeforeValidator(parse_seconds)]
Resources = Annotated[TrialResources, BeforeValidator(parse_resources)]


@checked_dataclass(
    frozen=True, kw_only=True, config=ConfigDict(arbitrary_types_allowed=True, strict=True)
)
class JobSpec(JobCfg):
    """A `JobCfg` that was checked, as one frozen value that can be sent to other processes.

    The fields are those of `JobCfg`. Declared here are those that have another type once they
    are checked, and what is found out on the way.
    """

    name: str
    file: Path | None
    config: EngineConfig  # type: ignore[assignment]
    space: SearchSpace  # type: ignore[assignment]
    """Of both configs: `create_space` is part of it, and empty."""
    metric: str = "eval_value"
    mode: Mode = "max"
    more_objectives: tuple[Objective, ...] = ()
    """The objectives after the first, which is `metric` and `mode`."""
    max_time: Seconds | None
    max_trial_time: Seconds | None
    resources: Resources  # type: ignore[assignment]
    has_own_resources: bool
    """Whether the user has set `resources`."""
    seeds: Annotated[tuple[int, ...], BeforeValidator(_seeds)]
    searcher: str | Searcher | None
    known_points: Annotated[tuple[Any, ...], Field(strict=False)]
    scheduler: str | TrialScheduler | None
    progress_reporter: Annotated[Any, AfterValidator(_known_reporter)]
    dijob_template: Path | None
    task_resources: Annotated[dict[str, Resources], Field(strict=False)]  # type: ignore[assignment]
    startup_time: Seconds | None
    stall_time: Seconds | None
    retries: Annotated[dict[str, NonNegativeInt], BeforeValidator(parse_retries)]

    @property
    def objectives(self) -> tuple[Objective, ...]:
        return Objective(self.metric, self.mode), *self.more_objectives

    @property
    def limits(self) -> dict[str, int]:
        """How long a training may be, as an entry takes it."""
        limits = {"max_env_step": self.max_env_step, "max_train_iter": self.max_train_iter}
        return {key: value for key, value in limits.items() if value is not None}

    @field_validator("entry")
    @classmethod
    def _known_entry(cls, given: Any) -> Any:
        if isinstance(given, str) and given != MAIN_ENTRY:
            entry_function_name(given)
        return given

    @field_validator("max_env_step", "max_train_iter", mode="before")
    @classmethod
    def _whole_float(cls, given: Any) -> Any:
        """Take `1e5`, which Python reads as a float, for the number it is."""
        return int(given) if isinstance(given, float) and given.is_integer() else given


_FIELDS = {field.name for field in fields(JobCfg)}
"""What a user may set."""
_READ_HERE = {"config", "entry_args", "space", "create_space", "metric", "mode", "dijob_template"}


def check_job(job: type[JobCfg], changes: Mapping[str, Any], file: Path | None = None) -> JobSpec:
    """Check a whole `JobCfg`, with `changes` from the command line laid over it.

    `changes` may hold any of its attributes; `set`, the plain values by dotted name that win
    over the space; and `searcher_opt` and `scheduler_opt`, single settings. Raises one
    `BadConfigError` with every mistake, each with the class and the field.
    """
    given, folder = _given(job, changes), file.parent if file else None
    problems = []
    for key in sorted(set(given) - _FIELDS):
        own = "attributes of your own have to start with an underscore"
        hint = f"{did_you_mean(key, _FIELDS)} {own}".strip()
        problems.append(Problem(key, "is not a field of a JobCfg", hint))
    values = {key: value for key, value in given.items() if key in _FIELDS - _READ_HERE}
    values |= {"name": job.__name__, "file": file, "create_space": {}}
    values["has_own_resources"] = "resources" in changes or _sets(job, "resources")
    with _collected(problems, "config: "):
        values["config"] = _load_config(given.get("config"), folder)
    with _collected(problems, "entry_args.expert_cfg: "):
        values["entry_args"] = _with_expert(given["entry_args"], folder)
    trees = {key: given[key] for key in ("space", "create_space")}
    wrong = {key: tree for key, tree in trees.items() if not isinstance(tree, Mapping)}
    problems += [
        Problem(key, f"it is {tree!r}; it has to be a dict") for key, tree in wrong.items()
    ]
    if not wrong:
        with _collected(problems, "space: "):
            values["space"] = build_space(**trees, overrides=changes.get("set", {}))
    with _collected(problems):
        values["dijob_template"] = _find_template(given["dijob_template"], folder)
    with _collected(problems):
        first, *more = parse_objectives(given["metric"], given["mode"])
        values |= {"metric": first.metric, "mode": first.mode, "more_objectives": tuple(more)}
    spec = None
    try:
        spec = JobSpec(**values)
        problems += _main_block_problems(spec)
    except ValidationError as error:
        problems += problems_of(error, partial(_place, values))
    if problems or spec is None:
        named = (Problem(f"{job.__name__}.{it.where}", it.what, it.hint) for it in problems)
        raise BadConfigError(named)
    return spec


def _given(job: type[JobCfg], changes: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for cls in reversed(job.__mro__[:-1]):
        given |= {key: item for key, item in vars(cls).items() if not key.startswith("_")}
    for key in ("entry", "searcher", "scheduler", "stopper"):
        if isinstance(given[key], staticmethod):
            given[key] = given[key].__func__
    for kind in ("searcher", "scheduler"):
        # The class's settings are those of the class's own searcher.
        kept = {} if kind in changes else given[f"{kind}_options"]
        if isinstance(kept, Mapping):
            given[f"{kind}_options"] = {**kept, **changes.get(f"{kind}_opt", {})}
    single = ("set", "searcher_opt", "scheduler_opt")
    return given | {key: value for key, value in changes.items() if key not in single}


def _sets(job: type[JobCfg], name: str) -> bool:
    return any(name in vars(cls) for cls in job.__mro__ if cls not in (JobCfg, object))


@contextlib.contextmanager
def _collected(problems: list[Problem], place: str = "") -> Iterator[None]:
    try:
        yield
    except BadConfigError as error:
        for item in error.problems:
            where = f"{place}{item.where}".removesuffix(": ")
            problems.append(Problem(where, item.what, item.hint))


def _load_config(ref: Any, folder: Path | None) -> EngineConfig:
    if ref is None:
        hint = "set it to a DI-engine config: a .py path, a dotted module or a pair of dicts"
        raise BadConfigError(Problem("", "is missing", hint))
    if not isinstance(ref, (str, Path, ModuleType, tuple)):
        what = f"{ref!r} is neither a path, a module nor a pair of dicts"
        raise BadConfigError(Problem("", what))
    return load_engine_config(ref, folder)


def _with_expert(given: Any, folder: Path | None) -> Any:
    """Load an expert's config, which may be given in all the ways of the base config."""
    if not isinstance(given, Mapping) or "expert_cfg" not in given:
        return given
    expert = _load_config(given["expert_cfg"], folder)
    return {**given, "expert_cfg": (expert.main, expert.create)}


def _find_template(ref: Any, folder: Path | None) -> Path | None:
    """Return the template's file, which the job's own file may name relative to itself."""
    if ref is None:
        return None
    path = find_beside(Path(ref).expanduser(), folder) if isinstance(ref, (str, Path)) else None
    if path is None or not path.is_file():
        raise BadConfigError(Problem("dijob_template", f"there is no file {ref!s}"))
    return path.resolve()


def _place(values: Mapping[str, Any], parts: Sequence[Any]) -> str:
    field, *inner = parts
    given = values.get(field)
    if inner and isinstance(given, Mapping) and inner[0] in given:
        return f"{field}.{inner[0]}"
    return field if field in values else ""


def _main_block_problems(spec: JobSpec) -> Iterable[Problem]:
    """Yield what a main block cannot be given: it calls what trains on its own."""
    if spec.entry != MAIN_ENTRY:
        return
    hint = "set it there, or use an entry of DI-engine such as 'serial'"
    what = "the main block of the config file says that itself, and entry 'main' runs it as it is"
    for field in ("max_env_step", "max_train_iter", "seeds", "entry_args"):
        if getattr(spec, field) not in (None, (0,), {}):
            yield Problem(field, what, hint)
    source = spec.config.source
    if source is None or not has_main_block(source):
        of = source or "a pair of dicts"
        block = '`if __name__ == "__main__":` block'
        yield Problem("entry", f"{of} has no {block}, which entry 'main' runs", hint)
