"""Running a recorded trial again, to see whether its score can be had again."""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.config.engine_config import load_engine_config
from ditk_ray.config.jsonable import jsonable
from ditk_ray.config.main_block import is_patched
from ditk_ray.config.resources import TrialResources
from ditk_ray.config.space import SearchSpace
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.tracking.record import SweepRecord, TrialRecord
from ditk_ray.tracking.trial_metrics import line_of_progress, read_metrics
from ditk_ray.trial.files import CONFIG_FILE
from ditk_ray.trial.recorded_training import RecordedTraining
from ditk_ray.trial.report_keys import ENDED
from ditk_ray.trial.seed import Metrics
from ditk_ray.trial.serial_run import SerialRun
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.warm_node import WarmNode

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
        """Whether every evaluation has the same score at the same step."""
        return self.first_difference is None


def same(one: Any, other: Any) -> bool:
    """Say whether two values of a metric are the same but for rounding."""
    if one is None or other is None:  # a score that was no number is recorded as none
        return one is other
    return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def replay_trial(
    record: SweepRecord,
    trial: TrialRecord,
    warm: WarmNode,
    told: Callable[[int, Metrics, Metrics], None] = lambda number, old, new: None,
) -> Replay:
    """Train a trial again, from its own config file and with its own seeds.

    It is run for as many evaluations as were recorded, in a folder of its own
    beside the trials. `told` is called for each with its number, what was recorded
    and what came now. Raises `BadConfigError` if the trial cannot be run again,
    `TrialFailedError` if its training fails.
    """
    config_file = Path(trial.dir) / CONFIG_FILE
    recorded = read_evaluations(trial)
    if not config_file.is_file() or not _can_train(config_file.read_text()):
        what = "has no config file that can be trained"
        raise BadConfigError(Problem(trial.id, what, "was it ever started?"))
    if not recorded:
        raise BadConfigError(Problem(trial.id, "has no evaluation to compare with"))
    folder = _free_folder(Path(trial.dir).parent / REPLAYS_FOLDER, trial.id)
    run = SerialRun(
        _plan(record, config_file, folder, warm), {}, folder, warm, gpu_ids=_gpu_ids(record)
    )
    shutil.copyfile(config_file, folder / CONFIG_FILE)
    replayed: list[Metrics] = []
    try:
        while len(replayed) < len(recorded):
            metrics = run.next_report()
            if metrics.get(ENDED) == "training":
                break
            replayed.append(jsonable(metrics))
            told(len(replayed), recorded[len(replayed) - 1], metrics)
    finally:
        run.close()
    return Replay(trial.id, record.metric, recorded, replayed, folder)


def _can_train(text: str) -> bool:
    return "def train(" in text or is_patched(text)


def read_evaluations(trial: TrialRecord) -> list[Metrics]:
    """Return the evaluations that a training without interruptions would have made."""
    rows = line_of_progress(read_metrics(Path(trial.dir)))
    # What the entry returned at the end of the training comes without an evaluation.
    return [row for row in rows if row.get(ENDED) != "training"]


def _plan(record: SweepRecord, config_file: Path, folder: Path, warm: WarmNode) -> TrialPlan:
    sources = [record.job.get(key) for key in ("file", "config")]
    beside = [str(Path(source).parent) for source in sources if source]
    return TrialPlan(
        base=load_engine_config(config_file),
        space=SearchSpace(()),
        entry=RecordedTraining(config_file),
        entry_args={},
        limits={},
        seeds=tuple(record.job.get("seeds") or (0,)),
        resources=TrialResources(**record.job.get("resources", {})),
        sweep_folder=folder.parent,
        warm_key=warm.key,
        python_path=(str(Path.cwd()), *beside),
        metric=record.metric,
        mode=record.mode,
        seeds_aggregate=record.job.get("seeds_aggregate", "mean"),
    )


def _gpu_ids(record: SweepRecord) -> list[str]:
    """Return the first GPUs that are visible here, as many as a trial had."""
    count = math.ceil(record.job.get("resources", {}).get("gpu", 0))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(count))))
    return [item for item in visible.split(",") if item][:count]


def _free_folder(parent: Path, name: str) -> Path:
    number = 0
    while (parent / f"{name}_{number}").exists():
        number += 1
    return parent / f"{name}_{number}"
