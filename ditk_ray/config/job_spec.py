"""`JobSpec`: a `JobCfg` that was checked, as one frozen value."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SearchAlgorithm, Searcher

from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.entries import entry_function_name
from ditk_ray.config.job_cfg import JobCfg
from ditk_ray.config.job_files import REPORTERS
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.quantities import parse_seconds
from ditk_ray.config.resources import TrialResources, parse_resources
from ditk_ray.config.space import SearchSpace, build_space
from ditk_ray.errors import BadConfigError, Problem

_TUNE_TYPES = {"searcher": (Searcher, SearchAlgorithm), "scheduler": (TrialScheduler,)}
Seconds = Annotated[PositiveFloat, BeforeValidator(parse_seconds)]
PlainDict = Annotated[dict[str, Any], BeforeValidator(lambda given: _as_dict(given))]


class JobSpec(BaseModel):
    """All that a sweep is, checked. The fields are those of `JobCfg`."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, strict=True
    )

    name: str
    file: Path | None = None
    config: EngineConfig
    entry: str | Callable[..., Any] = "serial"
    entry_args: PlainDict = Field(default_factory=dict)
    space: SearchSpace
    metric: str = Field(default="eval_value", min_length=1)
    mode: Literal["max", "min"] = "max"
    num_samples: PositiveInt = 1
    max_env_step: PositiveInt | None = None
    max_train_iter: PositiveInt | None = None
    max_time: Seconds | None = None
    max_trial_time: Seconds | None = None
    resources: Annotated[TrialResources, BeforeValidator(parse_resources)] = TrialResources()
    max_concurrent: PositiveInt | None = None
    seeds: tuple[int, ...] = (0,)
    searcher: Any = None
    scheduler: Any = None
    stopper: Any = None
    progress_reporter: Any = "auto"
    backend: Literal["serial"] = "serial"
    checkpoints: bool = False

    @field_validator("entry")
    @classmethod
    def _known_entry(cls, given: Any) -> Any:
        if isinstance(given, str):
            entry_function_name(given)
        return given

    @field_validator("searcher", "scheduler")
    @classmethod
    def _tune_object(cls, given: Any, about: ValidationInfo) -> Any:
        wanted = _TUNE_TYPES[str(about.field_name)]
        if given is not None and not isinstance(given, wanted):
            names = " or ".join(kind.__name__ for kind in wanted)
            raise ValueError(f"it is {given!r}; it has to be an instance of Ray Tune's {names}")
        return given

    @field_validator("progress_reporter")
    @classmethod
    def _known_reporter(cls, given: Any) -> Any:
        if isinstance(given, str) and given not in REPORTERS:
            raise ValueError(f"unknown display {given!r}; {did_you_mean(given, REPORTERS)}")
        return given

    @field_validator("max_env_step", "max_train_iter", mode="before")
    @classmethod
    def _whole_float(cls, given: Any) -> Any:
        """Take `1e5`, which Python reads as a float, for the number it is."""
        return int(given) if isinstance(given, float) and given.is_integer() else given

    @field_validator("seeds", mode="before")
    @classmethod
    def _listed(cls, given: Any) -> Any:
        if isinstance(given, int) and not isinstance(given, bool):
            if given < 1:
                raise ValueError("at least one seed is needed")
            return tuple(range(given))
        if isinstance(given, (str, bool)) or not isinstance(given, Iterable):
            raise ValueError(f"it is {given!r}; it has to be a number of seeds or a list of them")
        seeds = tuple(given)
        if not all(type(seed) is int for seed in seeds):
            raise ValueError(f"every seed has to be an integer (it is {given!r})")
        if not seeds:
            raise ValueError("at least one seed is needed")
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is listed twice")
        return seeds


_FIELDS = (set(JobSpec.model_fields) | {"create_space"}) - {"name", "file"}
"""What a user may set."""


def check_job(job: type[JobCfg], changes: Mapping[str, Any], file: Path | None = None) -> JobSpec:
    """Check a whole `JobCfg`, with `changes` from the command line laid over it.

    `changes` may hold any of its attributes, and `set`, the plain values by
    dotted name that win over the space. Raises one `BadConfigError` with every
    mistake, each with the class and the field.
    """
    given = _attributes(job) | {key: value for key, value in changes.items() if key != "set"}
    problems: list[Problem] = []
    values: dict[str, Any] = {"name": job.__name__, "file": file}
    for key in ("entry", "searcher", "scheduler", "stopper"):
        given[key] = _unbound(given[key])
    values |= {key: value for key, value in given.items() if key in _FIELDS - {"create_space"}}
    for key in sorted(set(given) - _FIELDS):
        hint = did_you_mean(key, _FIELDS)
        own = "attributes of your own have to start with an underscore"
        problems.append(
            Problem(f"{job.__name__}.{key}", "is no field of a JobCfg", f"{hint} {own}")
        )
    values["config"] = _loaded_config(job, "config", given.get("config"), file, problems)
    values["entry_args"] = _loaded_expert(job, given["entry_args"], file, problems)
    values["space"] = _built_space(job, given, changes.get("set", {}), problems)
    try:
        spec = JobSpec(**values)
    except ValidationError as error:
        problems += _from_pydantic(job, error)
    if problems:
        raise BadConfigError(problems)
    return spec


def _attributes(job: type[JobCfg]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cls in reversed(job.__mro__[:-1]):
        found |= {key: item for key, item in vars(cls).items() if not key.startswith("_")}
    return {
        key: dict(value) if isinstance(value, MappingProxyType) else value
        for key, value in found.items()
    }


def _unbound(value: Any) -> Any:
    return value.__func__ if isinstance(value, staticmethod) else value


def _loaded_expert(
    job: type[JobCfg], arguments: Any, file: Path | None, problems: list[Problem]
) -> Any:
    """Load an expert's config, which may be given in all the ways of the base config."""
    if not isinstance(arguments, Mapping) or "expert_cfg" not in arguments:
        return arguments
    field = "entry_args.expert_cfg"
    expert = _loaded_config(job, field, arguments["expert_cfg"], file, problems)
    return {**arguments, "expert_cfg": (expert.main, expert.create)}


def _loaded_config(
    job: type[JobCfg], field: str, ref: Any, file: Path | None, problems: list[Problem]
) -> EngineConfig:
    nothing = EngineConfig({}, {})
    where = f"{job.__name__}.{field}"
    if ref is None:
        hint = "set it to a DI-engine config: a .py path, a dotted module or a pair of dicts"
        problems.append(Problem(where, "is missing", hint))
        return nothing
    try:
        return load_engine_config(ref, file.parent if file else None)
    except BadConfigError as error:
        problems += [
            Problem(where, f"{item.where}: {item.what}", item.hint) for item in error.problems
        ]
    except (TypeError, AttributeError):
        what = f"{ref!r} is neither a path, a module nor a pair of dicts"
        problems.append(Problem(where, what))
    return nothing


def _built_space(
    job: type[JobCfg], given: Mapping[str, Any], fixed: Mapping[str, Any], problems: list[Problem]
) -> SearchSpace:
    trees: dict[str, Mapping[str, Any]] = {}
    for key in ("space", "create_space"):
        trees[key] = given.get(key, {})
        if not isinstance(trees[key], Mapping):
            what = f"is a {type(trees[key]).__name__}; it has to be a dict"
            problems.append(Problem(f"{job.__name__}.{key}", what))
            trees[key] = {}
    try:
        return build_space(trees["space"], trees["create_space"], fixed)
    except BadConfigError as error:
        problems += [
            Problem(f"{job.__name__}.space: {item.where}", item.what, item.hint)
            for item in error.problems
        ]
    return SearchSpace(())


def _as_dict(given: Any) -> Any:
    return dict(given) if isinstance(given, Mapping) else given


def _from_pydantic(job: type[JobCfg], error: ValidationError) -> list[Problem]:
    by_field: dict[str, Any] = {}
    for item in error.errors():  # a union has an error for each of its types
        by_field.setdefault(str(item["loc"][0]), item)
    return [
        Problem(
            f"{job.__name__}.{field}",
            # Messages of our own name the value where it helps.
            str(item["ctx"]["error"])
            if item["type"] == "value_error"
            else f"{item['msg']} (it is {item['input']!r})",
        )
        for field, item in by_field.items()
    ]
