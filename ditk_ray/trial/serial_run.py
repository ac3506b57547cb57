"""The serial backend: an attempt of a trial in processes of this node."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Mapping, Sequence
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from ditk_ray.config.engine_config import EngineConfig
from ditk_ray.trial.attempt_run import AttemptRun, attempt_folder, next_attempt
from ditk_ray.trial.checkpoints import (
    Checkpoint,
    CheckpointMeta,
    CheckpointStore,
    SeedProgress,
)
from ditk_ray.trial.files import SAVE_FILE
from ditk_ray.trial.report_keys import SAVED
from ditk_ray.trial.seed import Metrics
from ditk_ray.trial.seed_run import SeedRun
from ditk_ray.trial.spec import Attempt, Saving, TrialPlan
from ditk_ray.trial.turns import choose_turns
from ditk_ray.trial.warm_node import WarmNode

_log = logging.getLogger(__name__)


class SerialRun(AttemptRun):
    """An attempt whose seeds are forks of the node's warm server, and take turns.

    It goes on from the newest whole checkpoint in the trial's folder, if there is one.
    """

    def __init__(
        self,
        plan: TrialPlan,
        drawn: Mapping[str, Any],
        folder: Path,
        node: WarmNode,
        gpu_ids: Sequence[str] = (),
    ) -> None:
        # On a node that is not the driver's, the server has only just started.
        node.preload(plan.base.environment_modules)
        self._node = node
        self._store = CheckpointStore(folder, plan.checkpoints_kept)
        self._store.clear_staging()
        found = self._store.latest()
        before = found.meta if found else None
        super().__init__(
            plan,
            folder,
            next_attempt(folder),
            before.reports if before else 0,
            before.time if before else 0.0,
        )
        config = plan.config_of(drawn)
        self._write_config(config)
        self._slots = max(1, int(plan.resources.cpu))
        self._runs = [self._seed_run(seed, config, gpu_ids, found) for seed in plan.seeds]
        self._give_turns()

    @property
    def seeds(self) -> Sequence[SeedRun]:
        """Those that are trained, in the plan's order."""
        return self._runs

    def _seed_run(
        self, seed: int, config: EngineConfig, gpu_ids: Sequence[str], found: Checkpoint | None
    ) -> SeedRun:
        """Give a seed its part: all hold memory at once, but only some compute."""
        count, resources = len(self._plan.seeds), self._plan.resources
        progress = (found.meta.seeds.get(seed) if found else None) or SeedProgress()
        attempt = Attempt(
            config=config,
            call=self._plan.call_of(seed),
            folder=self._folder_of(seed),
            seed=seed,
            threads=max(1, resources.threads // min(self._slots, count)),
            gpu_ids=tuple(gpu_ids),
            gpu_share=resources.gpu / count,
            memory=resources.memory and resources.memory // count,
            saving=self._saving(),
            restore_from=found.folder if found else None,
            evaluations=self.reports,
            seconds=progress.evaluation.get("time", 0.0),
        )
        return SeedRun(attempt, self._result_file(seed), progress)

    def _saving(self) -> Saving | None:
        if not self._plan.checkpoints:
            return None
        base = attempt_folder(self.folder, self.attempt)
        return Saving(
            folder=self._store.staging(self.attempt),
            agreement=base / "saves.json" if len(self._plan.seeds) > 1 else None,
            every_evaluation=self._plan.checkpoints_every_evaluation,
            buffer=self._plan.checkpoint_buffer,
            wish=self.folder / SAVE_FILE,
        )

    def _give_turns(self) -> None:
        alive = {run.seed: run.evaluations for run in self._runs if not run.has_ended}
        turns = choose_turns(alive, self._slots)
        for run in self._runs:  # first make room, then use it
            if run.seed in alive and run.seed not in turns:
                run.wait_turn()
        for run in self._runs:
            if run.seed in turns:
                run.take_turn(self._node, self._plan.python_path)

    def _listen(self, seconds: float) -> set[int]:
        self._give_turns()
        live = {run.connection: run for run in self._runs if run.connection is not None}
        heard = [live[ready] for ready in wait(list(live), seconds)]  # type: ignore[index]
        for run in heard:
            run.listen()
        return {run.seed for run in heard}

    def _evaluated(self, number: int, metrics: Metrics) -> Metrics:
        return {SAVED: True} if self._keep_checkpoint(number, metrics) else {}

    def _keep_checkpoint(self, number: int, metrics: Metrics) -> bool:
        """Make what the seeds have saved at this evaluation a checkpoint, if all of them have."""
        staged = self._store.staging(self.attempt) / str(number)
        if not staged.is_dir():
            return False
        if not all(run.has_saved(number) for run in self._runs):
            shutil.rmtree(staged, ignore_errors=True)
            return False
        meta = CheckpointMeta(
            trial=self.folder.name,
            reports=number,
            attempt=self.attempt,
            env_step=int(metrics.get("env_step", 0)),
            train_iter=int(metrics.get("train_iter", 0)),
            time=float(metrics.get("time", 0.0)),
            seeds={run.seed: run.progress_at(number) for run in self._runs},
        )
        try:
            self._store.commit(staged, meta)
        except OSError as error:  # the one before stays
            _log.warning("%s: no checkpoint at evaluation %d: %s", self.folder, number, error)
            shutil.rmtree(staged, ignore_errors=True)
            return False
        return True
