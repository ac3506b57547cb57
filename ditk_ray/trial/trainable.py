"""A DI-engine trial as a Ray Tune trainable.

The actor stays light: it imports neither torch nor DI-engine, and is used for
one trial after the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import ray
from ray import tune

from ditk_ray.trial.attempt_run import AttemptRun
from ditk_ray.trial.checkpoints import CheckpointStore
from ditk_ray.trial.files import METRICS_FILE
from ditk_ray.trial.lasting_trial import LastingTrial
from ditk_ray.trial.metrics_file import read_reports
from ditk_ray.trial.report_keys import ENDED, REPORT
from ditk_ray.trial.seed import Metrics
from ditk_ray.trial.serial_run import SerialRun
from ditk_ray.trial.shipping import Shipped
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.warm_node import WarmNode

_ENDED_BY_ITSELF = ("training", "nan", "cancelled")


class TrialTrainable(tune.Trainable):
    """Runs trials in forks of the node's warm server, or as DIJobs; a step is an evaluation.

    A trial goes on from its own newest checkpoint, whoever ended the actor that ran it
    before. Tune's checkpoints are copies of those, made when Tune asks for them.
    """

    def setup(self, config: dict[str, Any], plan: Shipped | None = None) -> None:
        """Take the plan; the node's server is joined and training starts with the first step."""
        if plan is None:
            raise ValueError("a plan has to be bound with tune.with_parameters")
        self._plan: TrialPlan = plan.unpack()
        self._drawn = config
        self._trial: LastingTrial | None = None
        self._may_have_ended = True
        self._node = WarmNode(self._plan.warm_key)

    def step(self) -> Metrics:
        """Wait for the next evaluation and report it."""
        report = self._report_of_the_end() if self._trial is None else None
        if report is None:
            report = self._running().next_report()
        self._iteration = report[REPORT] - 1  # Tune adds one: its count goes on with the trial's
        told = {key: value for key, value in report.items() if key != REPORT}
        return {**told, tune.result.DONE: ENDED in report}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take over another trial, after ending whatever is left of this one."""
        self._close()
        self._drawn = new_config
        self._may_have_ended = True
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Copy the newest checkpoint into Tune's folder."""
        self._store.copy_latest(Path(checkpoint_dir))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Have the next attempt go on from the checkpoint in this folder, or a newer own one."""
        self._close()
        before = self._store.latest()
        if self._store.adopt(Path(str(checkpoint)), self._drawn) != before:
            self._may_have_ended = False

    def cleanup(self) -> None:
        """Leave nothing behind."""
        self._close()
        self._node.leave()

    @property
    def _folder(self) -> Path:
        return self._plan.sweep_folder / str(self.trial_name)

    @property
    def _store(self) -> CheckpointStore:
        return CheckpointStore(self._folder, self._plan.checkpoints_kept)

    def _running(self) -> LastingTrial:
        if self._trial is None:
            plan = self._plan
            # A scheduler may have given it others; those of a DIJob are not Ray's.
            if self.trial_resources is not None and plan.dijob is None:
                given = plan.resources.as_given(self.trial_resources.required_resources)
                plan = replace(plan, resources=given)
            self._trial = LastingTrial(plan, self._folder, self._starter(plan))
        return self._trial

    def _starter(self, plan: TrialPlan) -> Callable[[], AttemptRun]:
        """Return what starts the trial's next attempt."""
        if plan.dijob is not None:
            from ditk_ray.trial.dijob_run import start_dijob_run
            from ditk_ray.trial.job_office import OfficeDesk

            office = OfficeDesk(plan.dijob.office)
            return partial(start_dijob_run, plan, self._drawn, self._folder, office)
        gpu_ids = [str(number) for number in ray.get_gpu_ids()]
        return partial(SerialRun, plan, self._drawn, self._folder, self._node, gpu_ids)

    def _report_of_the_end(self) -> Metrics | None:
        """Return the last report again of a trial that has ended, unknown to the driver."""
        rows = read_reports(self._folder / METRICS_FILE) if self._may_have_ended else []
        if not rows or rows[-1].get(ENDED) not in _ENDED_BY_ITSELF:
            return None
        last, metric = rows[-1], self._plan.metric
        return {**last, metric: math.nan} if last.get(ENDED) == "nan" else last

    def _close(self) -> None:
        if self._trial is not None:
            self._trial.close()
            self._trial = None
