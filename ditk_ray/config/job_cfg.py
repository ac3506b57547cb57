"""`JobCfg`: the class that a user subclasses to describe a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal

from pydantic import ConfigDict, NonNegativeInt, PositiveInt
from pydantic.dataclasses import dataclass

from ditk_ray.config.engine_config import ConfigRef
from ditk_ray.config.options import DIJOBS, SEE, option, positive
from ditk_ray.config.terms import Aggregate


class _Default(dict[str, Any]):
    """A dict that is a field's default: of a dataclass's defaults, a hash is wanted."""

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)


@dataclass(
    frozen=True, kw_only=True, config=ConfigDict(use_attribute_docstrings=True, defer_build=True)
)
class JobCfg:
    """A sweep over a DI-engine experiment, written as plain class attributes.

    Subclass it and set what differs. It is never instantiated: the class itself
    is checked as a whole when it is loaded, and all mistakes are listed at once.
    Attributes that are not listed here have to start with an underscore. What is an
    `option` here may be changed on the command line: the first sentence is its help.
    """

    config: ConfigRef
    """The base experiment: a `.py` path (relative to this file), a dotted module
    such as `dizoo.classic_control.cartpole.config.cartpole_dqn_config`, or the
    pair `(main_config, create_config)`."""

    entry: str | Callable[..., Any] = "serial"
    """What trains: a DI-engine entry by the name that `ding -m` uses, a function of your
    own that takes `(main_config, create_config)`, or `main`: the config file's own
    `if __name__ == "__main__":` block, before which a trial's values are set in
    `main_config` and `create_config`. That block then sets its seed and its limits."""

    entry_args: Mapping[str, Any] = _Default()
    """Further arguments of the entry, such as `expert_cfg` or `data_path`."""

    space: Mapping[str, Any] = _Default()
    """What varies in `main_config`: nested or dotted, with Ray Tune's domains."""

    create_space: Mapping[str, Any] = _Default()
    """What varies in `create_config`."""

    metric: str | Sequence[str] = option(default="eval_value", metavar="NAME[,NAME]")
    """What is optimised. Of several, as in `["eval_value", "time"]`, the first chooses the
    best trial, and all of them the Pareto set."""

    mode: str | Sequence[str] = option(default="max", metavar="max|min[,max|min]")
    """For all metrics, or for each."""

    num_samples: PositiveInt = option(default=1, metavar="N", parse=positive)
    """How many times the space is drawn from (a grid is run in full each time)."""

    max_env_step: PositiveInt | None = None
    max_train_iter: PositiveInt | None = None
    max_time: str | float | timedelta | None = None
    """Wall-clock time for the whole sweep: seconds, or `"30m"`, `"2h"`."""

    max_trial_time: str | float | timedelta | None = None
    """Wall-clock time for one trial."""

    resources: Mapping[str, Any] = _Default(cpu=1)
    """For one trial: `cpu`, `gpu` (fractions below 1), `memory` (`"4G"`), `custom`. With
    `max_memory`, a trial that ran out of memory is retried with that much."""

    max_concurrent: PositiveInt | None = None
    """The maximum number of trials that run at once; by default as many as fit."""

    seeds: int | Sequence[int] = option(
        default=1, flags=["--repeat_run_count"], metavar="N", parse=positive
    )
    """On how many seeds each trial is run. A list says on which."""

    seeds_aggregate: Aggregate = option(default="mean")
    """How a trial's score follows from its seeds' scores (`iqm`: the interquartile mean)."""

    searcher: Any = option(metavar="NAME")
    """What chooses the trials. A name that `ditk-ray tune --list_searchers` shows, or a Ray
    Tune `Searcher`; by default the space is drawn from at random."""

    searcher_options: Mapping[str, Any] = _Default()
    """Settings of a searcher that is given by name."""

    known_points: Sequence[Mapping[str, Any]] = ()
    """Points of the space to begin with, nested or dotted as the space is. What a point
    leaves out is drawn."""

    warm_start: str | None = option(metavar="SWEEP")
    """An earlier sweep, by name or folder, that the searcher learns from."""

    scheduler: Any = option(metavar="NAME")
    """What ends, pauses or changes running trials. A name that `ditk-ray tune
    --list_schedulers` shows, or a Ray Tune `TrialScheduler`; by default every trial runs to
    its end."""

    scheduler_options: Mapping[str, Any] = _Default()
    """Settings of a scheduler that is given by name."""

    stopper: Any = option(metavar="RULE|CLASS")
    """Ends trials early, such as 'eval_value>=195 or plateau(eval_value, 5)', or the sweep:
    'sweep.time>=2h'. A rule, a dict, a Ray Tune `Stopper`, a function of `(trial_id,
    result)`; a list of them, any of which is enough, or what `ditk_ray.any_of` and
    `ditk_ray.all_of` put together."""

    progress_reporter: Any = option(default="auto", metavar="auto|live|plain|none|CLASS", group=SEE)
    """What shows the progress. A class is a Ray Tune `ProgressReporter`."""

    backend: Literal["serial", "dijob"] = option(default="serial", group=DIJOBS)
    """Where trials run: in processes of Ray's nodes (`serial`), or as DIJobs (`dijob`)."""

    dijob_template: Path | str | None = option(metavar="FILE", group=DIJOBS)
    """The YAML template of the trials' DIJobs. It may have a ConfigMap, too; its path is
    relative to this file."""

    task_resources: Mapping[str, Mapping[str, Any]] = _Default()
    """For `dijob`: the resources of single tasks, by their names; tasks that are not named
    get `resources`, if the job sets them, else the template's."""

    checkpoints: bool = True
    """Whether trials keep checkpoints, from which a retry or a resumed sweep continues."""

    checkpoint_buffer: bool = False
    """Whether the replay buffer is part of them; it may be large."""

    startup_time: str | float | timedelta | None = None
    """How long a trial may take to its first evaluation; `stall_time` by default."""

    stall_time: str | float | timedelta | None = None
    """How long a trial may take from one evaluation to the next. One that takes longer counts
    as hung: it is ended and retried."""

    retries: Mapping[str, int] = _Default()
    """How often a trial is retried, by the kind of failure: `bug` (0 by default),
    `out_of_memory` (1), `stall` (2), `lost` (10 in an hour), `disk_full` (5), `not_started` (1,
    of DIJobs)."""

    max_same_failures: NonNegativeInt = 5
    """When this many trials have ended and all of them failed in the same way, the sweep is
    stopped; 0 lets it continue."""
