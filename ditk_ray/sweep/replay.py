"""Running a recorded trial again, to see whether its score is reproducible."""

from __future__ import annotations

import itertools
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.config.config_file import is_patched
from ditk_ray.config.job_cfg import JobCfg
from ditk_ray.config.job_spec import check_job
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.execution.executor import Metrics
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.execution.process import ProcessExecutor
from ditk_ray.record.record import SweepRecord, TrialRecord
from ditk_ray.record.trial_folder import read_metrics
from ditk_ray.trial.attempt import start_attempt
from ditk_ray.trial.inspection import training_modules
from ditk_ray.trial.plan import TrialPlan
from ditk_ray.trial.reports import CONFIG_FILE, ENDED, standing
from ditk_ray.trial.training import RecordedTraining
from ditk_ray.util.plain import jsonable

REPLAYS_FOLDER = "replays"
TOLERANCE = 1e-6
"""How far two scores may be apart, relative to their size, and still be the same."""


@dataclass(frozen=True)
class Replay:
    """A trial's evaluations as they were recorded, and as they came out again."""

    trial: str
    metric: str
    recorded: list[Metrics]
    replayed: list[Metrics]
    folder: Path

    @property
    def first_difference(self) -> int | None:
        """The number of the first evaluation that differs, None if all agree."""
        for number, (old, new) in enumerate(zip(self.recorded, self.replayed, strict=False)):
            if not all(same(old.get(key), new.get(key)) for key in (self.metric, "env_step")):
                return number
        shorter, longer = sorted((len(self.recorded), len(self.replayed)))
        return None if shorter == longer else shorter

    @property
    def agrees(self) -> bool:
        return self.first_difference is None


def same(one: Any, other: Any) -> bool:
    """Say whether two values of a metric are the same except for rounding."""
    if one is None or other is None:  # a score that was no number is recorded as none
        return one is other
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def replay_trial(
    record: SweepRecord,
    trial: TrialRecord,
    warm: ForkClient,
    report: Callable[[int, Metrics, Metrics], None] = lambda number, old, new: None,
) -> Replay:
    """Train a trial again, from its own config file and with its own seeds.

    It is run for as many evaluations as were recorded, in a folder of its own
    beside the trials. `report` is called for each with its number, what was recorded
    and what came now. Raises `BadConfigError` if the trial cannot be run again,
    `TrialFailedError` if its training fails.
    """
    config_file = Path(trial.dir) / CONFIG_FILE
    recorded = read_evaluations(trial)
    text = config_file.read_text() if config_file.is_file() else ""
    if "def train(" not in text and not is_patched(text):
        what = "has no config file that can be trained"
        raise BadConfigError(Problem(trial.id, what, "was it ever started?"))
    if not recorded:
        raise BadConfigError(Problem(trial.id, "has no evaluation to compare with"))
    paths = (Path(trial.dir).parent / REPLAYS_FOLDER / f"{trial.id}_{n}" for n in itertools.count())
    folder = next(path for path in paths if not path.exists())
    run = start_attempt(_plan(record, config_file, folder, warm), {}, folder, _gpu_ids(record))
    shutil.copyfile(config_file, folder / CONFIG_FILE)
    replayed: list[Metrics] = []
    try:
        while len(replayed) < len(recorded):
            metrics = run.next_report()
            if metrics.get(ENDED) == "training":
                break
            replayed.append(jsonable(metrics))
            report(len(replayed), recorded[len(replayed) - 1], metrics)
    finally:
        run.close()
    return Replay(trial.id, record.metric, recorded, replayed, folder)


def read_evaluations(trial: TrialRecord) -> list[Metrics]:
    """Return the evaluations that a training without interruptions would have made."""
    rows = standing(read_metrics(Path(trial.dir)))
    # What the entry returned at the end of the training comes without an evaluation.
    return [row for row in rows if row.get(ENDED) != "training"]


def _plan(record: SweepRecord, config_file: Path, folder: Path, warm: ForkClient) -> TrialPlan:
    sources = [record.job.get(key) for key in ("file", "config")]
    beside = [str(Path(source).parent) for source in sources if source]
    job = check_job(
        JobCfg,
        {
            "config": config_file,
            "entry": RecordedTraining(config_file),
            "seeds": record.job.get("seeds", 1),
            "seeds_aggregate": record.job.get("seeds_aggregate", "mean"),
            "resources": record.job.get("resources", {}),
            "metric": record.metric,
            "mode": record.mode,
            "checkpoints": False,
        },
    )
    executor = ProcessExecutor(warm.key, training_modules(job.config, job.entry))
    return TrialPlan(job, folder.parent, executor, python_path=(str(Path.cwd()), *beside))


def _gpu_ids(record: SweepRecord) -> list[str]:
    count = math.ceil(record.job.get("resources", {}).get("gpu", 0))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    return [item for item in visible.split(",") if item][:count]
