"""The values that describe a trial: what all trials share, and one attempt of one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import SearchSpace
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
    python_path: tuple[str, ...] = ()
    entry_home: str | None = None
    metric: str = "eval_value"

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
        return EngineConfig(main, config.create, config.source)

    def call_of(self, seed: int) -> EntryCall:
        """Return how such a config is trained with one seed."""
        arguments = {"seed": seed, **self.limits, **self.entry_args}
        return EntryCall(self.entry, arguments, self.entry_home)


@dataclass(frozen=True)
class Attempt:
    """One run of one trial with one seed: all that its process needs to know."""

    config: EngineConfig
    call: EntryCall
    folder: Path
    threads: int = 1
    gpu_ids: tuple[str, ...] = ()
    gpu_share: float = 0.0
    memory: int | None = None
    checkpoints: bool = False
    restore_from: Path | None = None

    @property
    def log(self) -> Path:
        """The file that holds all that the attempt prints."""
        return self.folder / LOG_FILE
