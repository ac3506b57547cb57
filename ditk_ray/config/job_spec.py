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
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    ValidationError,
    ValidationInfo,
    field_validator,
)
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import Searcher

from ditk_ray.config.engine_config import EngineConfig, load_engine_config
from ditk_ray.config.entries import MAIN_ENTRY, entry_function_name
from ditk_ray.config.failure_kinds import DEFAULT_RETRIES, parse_retries
from ditk_ray.config.job_cfg import JobCfg
from ditk_ray.config.job_files import REPORTERS
from ditk_ray.config.main_block import has_main_block
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.objectives import Objective, pair_objectives, parse_metrics, parse_modes
from ditk_ray.config.quantities import parse_seconds
from ditk_ray.config.resources import TrialResources, parse_resources
from ditk_ray.config.space import SearchSpace, build_space
from ditk_ray.errors import BadConfigError, Problem

SEEDS_AGGREGATES = ("mean", "median", "worst", "iqm")
_TUNE_TYPES = {"searcher": (Searcher,), "scheduler": (TrialScheduler,)}
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
    more_objectives: tuple[Objective, ...] = ()
    """Those besides `metric` and `mode`, which are the first."""
    num_samples: PositiveInt = 1
    max_env_step: PositiveInt | None = None
    max_train_iter: PositiveInt | None = None
    max_time: Seconds | None = None
    max_trial_time: Seconds | None = None
    resources: Annotated[TrialResources, BeforeValidator(parse_resources)] = TrialResources()
    max_concurrent: PositiveInt | None = None
    seeds: tuple[int, ...] = (0,)
    seeds_aggregate: str = "mean"
    searcher: Any = None
    searcher_options: PlainDict = Field(default_factory=dict)
    known_points: tuple[Any, ...] = ()
    warm_start: str | None = None
    scheduler: Any = None
    scheduler_options: PlainDict = Field(default_factory=dict)
    stopper: Any = None
    progress_reporter: Any = "auto"
    backend: Literal["serial", "dijob"] = "serial"
    dijob_template: Path | None = None
    task_resources: Annotated[
        dict[str, TrialResources], BeforeValidator(lambda given: _by_task(given))
    ] = Field(default_factory=dict)
    has_own_resources: bool = False
    """Whether the user has set `resources`."""
    checkpoints: bool = True
    checkpoint_buffer: bool = False
    startup_time: Seconds | None = None
    stall_time: Seconds | None = None
    retries: Annotated[dict[str, int], BeforeValidator(parse_retries)] = Field(
        default_factory=lambda: dict(DEFAULT_RETRIES)
    )
    max_same_failures: NonNegativeInt = 5

    @property
    def objectives(self) -> tuple[Objective, ...]:
        """All that is optimised."""
        return Objective(self.metric, self.mode), *self.more_objectives

    @field_validator("entry")
    @classmethod
    def _known_entry(cls, given: Any) -> Any:
        if isinstance(given, str) and given != MAIN_ENTRY:
            entry_function_name(given)
        return given

    @field_validator("searcher", "scheduler")
    @classmethod
    def _tune_object(cls, given: Any, about: ValidationInfo) -> Any:
        wanted = _TUNE_TYPES[str(about.field_name)]
        if given is not None and not isinstance(given, (str, *wanted)):
            names = " or ".join(kind.__name__ for kind in wanted)
            what = f"it has to be a name, or an instance of Ray Tune's {names}"
            raise ValueError(f"it is {given!r}; {what}")
        return given

    @field_validator("seeds_aggregate")
    @classmethod
    def _known_aggregate(cls, given: str) -> str:
        if given not in SEEDS_AGGREGATES:
            raise ValueError(f"it is {given!r}; {did_you_mean(given, SEEDS_AGGREGATES)}")
        return given

    @field_validator("known_points", mode="before")
    @classmethod
    def _listed_points(cls, given: Any) -> Any:
        if isinstance(given, (str, Mapping)) or not isinstance(given, Iterable):
            raise ValueError(f"it is {given!r}; it has to be a list of dicts")
        return tuple(given)

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


_SINGLE = ("set", "searcher_opt", "scheduler_opt")
_FIELDS = (set(JobSpec.model_fields) | {"create_space"}) - {
    "name",
    "file",
    "more_objectives",
    "has_own_resources",
}
"""What a user may set."""


def check_job(job: type[JobCfg], changes: Mapping[str, Any], file: Path | None = None) -> JobSpec:
    """Check a whole `JobCfg`, with `changes` from the command line laid over it.

    `changes` may hold any of its attributes; `set`, the plain values by dotted name that win
    over the space; and `searcher_opt` and `scheduler_opt`, single settings. Raises one
    `BadConfigError` with every mistake, each with the class and the field.
    """
    given = _attributes(job)
    for kind in _TUNE_TYPES:
        # The class's settings are those of the class's own searcher.
        kept = {} if kind in changes else given[f"{kind}_options"]
        if isinstance(kept, Mapping):
            given[f"{kind}_options"] = {**kept, **changes.get(f"{kind}_opt", {})}
    given |= {key: value for key, value in changes.items() if key not in _SINGLE}
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
    values["has_own_resources"] = "resources" in changes or _sets(job, "resources")
    values["dijob_template"] = _template(job, given, file, problems)
    values |= _objectives(job, values.pop("metric"), values.pop("mode"), problems)
    try:
        spec = JobSpec(**values)
    except ValidationError as error:
        problems += _from_pydantic(job, error)
    else:
        problems += _main_entry_problems(job, spec) if spec.entry == MAIN_ENTRY else []
    if problems:
        raise BadConfigError(problems)
    return spec


def _main_entry_problems(job: type[JobCfg], spec: JobSpec) -> list[Problem]:
    """Return what a main block cannot be given: it calls what trains on its own."""
    given = {
        "max_env_step": spec.max_env_step,
        "max_train_iter": spec.max_train_iter,
        "seeds": spec.seeds != (0,),
        "entry_args": spec.entry_args,
    }
    what = "the main block of the config file says that itself, and entry 'main' runs it as it is"
    hint = "set it there, or use an entry of DI-engine such as 'serial'"
    problems = [
        Problem(f"{job.__name__}.{field}", what, hint) for field, is_set in given.items() if is_set
    ]
    source = spec.config.source
    if source is None or not has_main_block(source):
        of = f"{source} has no" if source else "a pair of dicts has no"
        what = f"{of} `if __name__ == \"__main__\":` block, which entry 'main' runs"
        problems.append(Problem(f"{job.__name__}.entry", what, hint))
    return problems


def _objectives(
    job: type[JobCfg], metric: Any, mode: Any, problems: list[Problem]
) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for field, given, parse in (("metric", metric, parse_metrics), ("mode", mode, parse_modes)):
        try:
            found[field] = list(parse(given))
        except ValueError as error:
            problems.append(Problem(f"{job.__name__}.{field}", str(error)))
    if len(found) < 2:
        return {}
    try:
        first, *more = pair_objectives(found["metric"], found["mode"])
    except ValueError as error:
        problems.append(Problem(f"{job.__name__}.mode", str(error)))
        return {}
    return {"metric": first.metric, "mode": first.mode, "more_objectives": tuple(more)}


def _attributes(job: type[JobCfg]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for cls in reversed(job.__mro__[:-1]):
        found |= {key: item for key, item in vars(cls).items() if not key.startswith("_")}
    return {
        key: dict(value) if isinstance(value, MappingProxyType) else value
        for key, value in found.items()
    }


def _sets(job: type[JobCfg], name: str) -> bool:
    return any(name in vars(cls) for cls in job.__mro__ if cls not in (JobCfg, object))


def _template(
    job: type[JobCfg], given: Mapping[str, Any], file: Path | None, problems: list[Problem]
) -> Path | None:
    """Return the template's file, which the job's own file may name relative to itself."""
    where, ref = f"{job.__name__}.dijob_template", given.get("dijob_template")
    if ref is None:
        if given.get("backend") == "dijob":
            hint = "give the YAML file of a DIJob: --dijob_template FILE"
            problems.append(Problem(where, "is missing, and the backend is dijob", hint))
        return None
    if not isinstance(ref, (str, Path)):
        problems.append(Problem(where, f"is {ref!r}; it has to be the path of a YAML file"))
        return None
    path = Path(ref).expanduser()
    beside = file.parent / path if file and not path.is_absolute() else path
    found = next((one for one in (beside, path) if one.is_file()), None)
    if found is None:
        problems.append(Problem(where, f"there is no file {ref}"))
        return None
    return found.resolve()


def _by_task(given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise ValueError(f"it is {given!r}; it has to be a dict of tasks and their resources")
    found = {}
    for task, wanted in given.items():
        try:
            found[str(task)] = parse_resources(wanted)
        except ValueError as error:
            raise ValueError(f"{task}: {error}") from error
    return found


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
