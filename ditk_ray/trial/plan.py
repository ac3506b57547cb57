"""The values that describe a trial: what all trials share, and what one seed trains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from easydict import EasyDict

from ditk_ray.config.config_file import EntryCall
from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.config.job_spec import JobSpec
from ditk_ray.execution.executor import Executor
from ditk_ray.execution.guard import Channel
from ditk_ray.execution.scripted import script_of
from ditk_ray.trial.reports import LOG_FILE
from ditk_ray.util.python_file import FILE_MODULE_PREFIX


@dataclass(frozen=True)
class TrialPlan:
    """What all trials of a sweep have in common; shipped to the workers once."""

    job: JobSpec
    """With the space that is searched, and the seeds and resources that trials have."""
    sweep_folder: Path
    executor: Executor[SeedTask]
    ends_at: float | None = None
    """When the sweep's own time is over, as `time.time()` counts."""
    checkpoints_every_evaluation: bool = False
    """Whether each evaluation has one, whatever it costs: for schedulers that pause trials."""
    python_path: tuple[str, ...] = ()

    def config_of(self, drawn: Mapping[str, Any]) -> EngineConfig:
        config = self.job.config.overlaid(*self.job.space.sample(drawn))
        main = dict(config.main)
        # Everything of a trial belongs into its own folder.
        main["exp_name"] = Path(main.get("exp_name", "experiment")).name
        policy = dict(main.get("policy", {}))
        policy["cuda"] = self.job.resources.gpu > 0
        main["policy"] = policy
        return replace(config, main=main)

    def call_of(self, seed: int) -> EntryCall:
        job = self.job
        is_of_file = getattr(job.entry, "__module__", "").startswith(FILE_MODULE_PREFIX)
        home = str(job.file) if job.file and is_of_file else None
        return EntryCall(job.entry, {"seed": seed, **job.limits, **job.entry_args}, home)


@dataclass(frozen=True)
class Saving:
    """Where and how often one seed of an attempt saves what it could resume from."""

    folder: Path
    """A folder for each evaluation at which it saves, by number."""
    agreement: Path | None = None
    """Where the seeds of a trial agree on the evaluations at which they save."""
    every_evaluation: bool = False
    buffer: bool = False
    wish: Path | None = None
    """A file; while it exists each evaluation is saved, whatever that costs."""


@dataclass(frozen=True)
class SeedTask:
    """The training of one seed in one attempt: all that runs it needs to know."""

    config: EngineConfig
    call: EntryCall
    folder: Path
    seed: int = 0
    trial: str = ""
    attempt: int = 0
    is_alone: bool = True
    """Whether the trial has no other seed."""
    title: str = ""
    """What it is of, for people."""
    threads: int = 1
    gpu_ids: tuple[str, ...] = ()
    gpu_share: float = 0.0
    memory: int | None = None
    has_run_out: bool = False
    """Whether an earlier attempt ran out of memory."""
    python_path: tuple[str, ...] = ()
    saving: Saving | None = None
    restore_from: Path | None = None
    """The folder of the checkpoint that it resumes from."""
    evaluations: int = 0
    """How many it has behind it, with that checkpoint."""
    seconds: float = 0.0
    """How long it has trained already, likewise."""

    @property
    def log(self) -> Path:
        return self.folder / LOG_FILE

    def run(self, channel: Channel) -> None:
        """Train it in this process, which is given over to it."""
        from ditk_ray.trial.training import train  # it needs this module

        train(self, channel)

    def script(self) -> Iterator[Mapping[str, Any]]:
        script = script_of(self.call.entry)
        assert script is not None, "it is run by an executor of scripts"
        return script(EasyDict(self.config.main), **self.call.arguments)
