"""A DI-engine trial as a Ray Tune trainable.

The actor stays light: it imports neither torch nor DI-engine, and is used for
one trial after the other.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import ray
from ray import tune

from ditk_ray.trial.report_keys import ATTEMPT, ENDED
from ditk_ray.trial.serial_run import Metrics, SerialRun, checkpoint_name
from ditk_ray.trial.shipping import Shipped
from ditk_ray.trial.spec import TrialPlan
from ditk_ray.trial.warm_node import WarmNode


class TrialTrainable(tune.Trainable):
    """Runs trials in forks of the node's warm server; one step is one evaluation."""

    def setup(self, config: dict[str, Any], plan: Shipped | None = None) -> None:
        """Join the node's server; training starts with the first step."""
        if plan is None:
            raise ValueError("a plan has to be bound with tune.with_parameters")
        self._plan: TrialPlan = plan.unpack()
        self._drawn = config
        self._run: SerialRun | None = None
        self._restore_from: Path | None = None
        self._node = WarmNode(self._plan.warm_key)
        self._node.join()
        # On a node that is not the driver's, the server has only just started.
        self._node.preload(self._plan.base.environment_modules)

    def step(self) -> Metrics:
        """Wait for the next evaluation and report it."""
        if self._run is None:
            self._run = SerialRun(
                self._plan,
                self._drawn,
                self._plan.sweep_folder / self.trial_name,
                self._node,
                gpu_ids=[str(number) for number in ray.get_gpu_ids()],
                restore_from=self._restore_from,
            )
        report = self._run.next_report()
        if ENDED in report:
            self._run.close()  # kept for Tune, which may save a checkpoint next
        return {**report, ATTEMPT: self._run.attempt, tune.result.DONE: ENDED in report}

    def reset_config(self, new_config: dict[str, Any]) -> bool:
        """Take over another trial, after ending whatever is left of this one."""
        self._close()
        self._drawn = new_config
        self._restore_from = None
        return True

    def save_checkpoint(self, checkpoint_dir: str) -> None:
        """Copy each seed's newest checkpoint into Tune's folder."""
        checkpoints = self._run.checkpoints() if self._run else {}
        for seed, path in checkpoints.items():
            shutil.copyfile(path, Path(checkpoint_dir) / checkpoint_name(seed))

    def load_checkpoint(self, checkpoint: Any) -> None:
        """Have the next attempt go on from the checkpoints in this folder."""
        self._close()
        kept = self._plan.sweep_folder / self.trial_name / "restored"
        shutil.copytree(str(checkpoint), kept, dirs_exist_ok=True)
        self._restore_from = kept

    def cleanup(self) -> None:
        """Leave nothing behind."""
        self._close()
        self._node.leave()

    def _close(self) -> None:
        if self._run is not None:
            self._run.close()
            self._run = None
