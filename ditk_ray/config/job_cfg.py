"""`JobCfg`: the class that a user subclasses to describe a sweep."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from types import MappingProxyType
from typing import Any, ClassVar

from ditk_ray.config.engine_config import ConfigRef


class JobCfg:
    """A sweep over a DI-engine experiment, written as plain class attributes.

    Subclass it and set what differs. It is never instantiated: the class itself
    is checked as a whole when it is loaded, and all mistakes are listed at once.
    Attributes that are not listed here have to start with an underscore.
    """

    config: ClassVar[ConfigRef]
    """The base experiment: a `.py` path (relative to this file), a dotted module
    such as `dizoo.classic_control.cartpole.config.cartpole_dqn_config`, or the
    pair `(main_config, create_config)`."""

    entry: ClassVar[str | Callable[..., Any]] = "serial"
    """What trains: a DI-engine entry by the name that `ding -m` uses, or a
    function of your own that takes `(main_config, create_config)`."""

    entry_args: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Further arguments of the entry, such as `expert_cfg` or `data_path`."""

    space: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """What varies in `main_config`: nested or dotted, with Ray Tune's domains."""

    create_space: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """What varies in `create_config`."""

    metric: ClassVar[str] = "eval_value"
    mode: ClassVar[str] = "max"
    num_samples: ClassVar[int] = 1
    """How many times the space is drawn from (a grid is gone through each time)."""

    max_env_step: ClassVar[int | None] = None
    max_train_iter: ClassVar[int | None] = None
    max_time: ClassVar[str | float | timedelta | None] = None
    """Wall-clock time for the whole sweep: seconds, or `"30m"`, `"2h"`."""

    max_trial_time: ClassVar[str | float | timedelta | None] = None
    """Wall-clock time for one trial."""

    resources: ClassVar[Mapping[str, Any]] = MappingProxyType({"cpu": 1})
    """For one trial: `cpu`, `gpu` (fractions below 1), `memory` (`"4G"`), `custom`."""

    max_concurrent: ClassVar[int | None] = None
    """How many trials run at once at most; by default as many as fit."""

    seeds: ClassVar[int | Sequence[int]] = 1
    """On how many seeds, or on which, each configuration is run. The trial's
    score is the mean over its seeds."""

    searcher: ClassVar[Any] = None
    """A Ray Tune `Searcher`; by default the space is drawn from at random."""

    scheduler: ClassVar[Any] = None
    """A Ray Tune `TrialScheduler`; by default every trial runs to its end."""

    stopper: ClassVar[Any] = None
    """Ends trials early: a rule such as `"eval_value>=195"`, a dict, a Ray Tune
    `Stopper`, or a function of `(trial_id, result)`."""

    progress_reporter: ClassVar[Any] = "auto"
    """`auto`, `live`, `plain`, `none`, or a Ray Tune `ProgressReporter`."""

    backend: ClassVar[str] = "serial"

    checkpoints: ClassVar[bool] = False
    """Whether a checkpoint is kept at each evaluation, to go on from later."""
