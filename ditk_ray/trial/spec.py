"""The values that describe a trial: what all trials share, and one attempt of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.failure_kinds import DEFAULT_RETRIES
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import SearchSpace
from ditk_ray.trial.dijob_plan import DijobPlan
from ditk_ray.trial.files import LOG_FILE


@dataclass(frozen=True)
class TrialPlan:
    """What all trials of a sweep have in common; shipped to the workers once."""

    base: EngineConfig
    space: SearchSpace
    entry: str | Callable[..., Any]
    entry_args: Mapping[str, Any]
    limits: Mapping[str, int]
    seeds: tuple[int, ...]
    resources: TrialResources
    sweep_folder: Path
    warm_key: str
    max_seconds: float | None = None
    ends_at: float | None = None
    """When the sweep's own time is over, as `time.time()` counts."""
    checkpoints: bool = False
    checkpoints_every_evaluation: bool = False
    """Whether each evaluation has one, whatever it costs: for schedulers that pause trials."""
    checkpoints_kept: int = 2
    checkpoint_buffer: bool = False
    python_path: tuple[str, ...] = ()
    entry_home: str | None = None
    metric: str = "eval_value"
    mode: str = "max"
    seeds_aggregate: str = "mean"
    startup_time: float | None = None
    stall_time: float | None = None
    retries: Mapping[str, int] = field(default_factory=lambda: dict(DEFAULT_RETRIES))
    """How often a trial is tried again, by `FailureKind`."""
    dijob: DijobPlan | None = None
    """How its trials become DIJobs, if they do."""

    def config_of(self, drawn: Mapping[str, Any]) -> EngineConfig:
        """Return the config of the trial that Tune drew these values for."""
        sample = self.space.sample(drawn)
        config = self.base.overlaid(sample.main, sample.create)
        main = dict(config.main)
        # Everything of a trial belongs into its own folder.
        main["exp_name"] = Path(main.get("exp_name", "experiment")).name
        policy = dict(main.get("policy", {}))
        policy["cuda"] = self.resources.gpu > 0
        main["policy"] = policy
        return replace(config, main=main)

    def call_of(self, seed: int) -> EntryCall:
        """Return how such a config is trained with one seed."""
        arguments = {"seed": seed, **self.limits, **self.entry_args}
        return EntryCall(self.entry, arguments, self.entry_home)


@dataclass(frozen=True)
class Saving:
    """Where and how often one seed of an attempt saves what it could go on from."""

    folder: Path
    """A folder for each evaluation at which it saves, by number."""
    agreement: Path | None = None
    """Where the seeds of a trial agree on the evaluations at which they save."""
    every_evaluation: bool = False
    buffer: bool = False
    wish: Path | None = None
    """A file; while it exists each evaluation is saved, whatever that costs."""


@dataclass(frozen=True)
class Attempt:
    """One run of one trial with one seed: all that its process needs to know."""

    config: EngineConfig
    call: EntryCall
    folder: Path
    seed: int = 0
    threads: int = 1
    gpu_ids: tuple[str, ...] = ()
    gpu_share: float = 0.0
    memory: int | None = None
    saving: Saving | None = None
    restore_from: Path | None = None
    """The folder of the checkpoint that it goes on from."""
    evaluations: int = 0
    """How many it has behind it, with that checkpoint."""
    seconds: float = 0.0
    """How long it has trained already, likewise."""

    @property
    def log(self) -> Path:
        """The file that holds all that the attempt prints."""
        return self.folder / LOG_FILE
