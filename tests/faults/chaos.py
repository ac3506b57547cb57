"""A sweep under random faults: drivers, workers, trials and nodes die or hang while it runs.

    python -m tests.faults.chaos --seed 1 --faults 40

Whatever happens, in the end every trial has to be there once, to have ended once, and
nothing may be left running.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import psutil

from ditk_ray.record.record import SweepRecord
from tests.faults.faulted_sweep import FaultedSweep, run_as_asked
from tests.processes import processes_in, wait_until
from tests.ray_cluster.ray_clusters import RayCluster
from tests.trial import experiments

NAME = "chaos"
JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class ChaosJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    searcher = "tpe"
    scheduler = "asha"
    space = {{
        "policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2),
        "env.stop_value": 10**9,
        "policy.eval.evaluator.eval_freq": 10,
    }}
    num_samples = @TRIALS@
    max_env_step = 1500
    stall_time = 15
    retries = {{"lost": 1000, "stall": 1000}}
"""


class Chaos(FaultedSweep):
    """Trials that train here, on a cluster whose nodes may go."""

    recovery_seconds: ClassVar[float] = 90.0
    between: ClassVar[tuple[int, int]] = (2, 6)

    def __init__(self, place: Path, cluster: RayCluster, seed: int, trials: int) -> None:
        self._cluster = cluster
        super().__init__(place, NAME, seed, trials, {"RAY_ADDRESS": cluster.address})

    def arguments(self) -> list[str]:
        """Write the job, and name it."""
        (self.place / "job.py").write_text(JOB.replace("@TRIALS@", str(self.trials)))
        return ["--cfg_file", "job.py"]

    def processes(self) -> list[psutil.Process]:
        """Return those of the trials."""
        return processes_in(self.folder)

    def faults(self) -> list[Callable[[], None]]:
        """Return what happens to drivers, workers, trials and nodes."""
        return [
            self.kill_driver,
            self.interrupt_driver,
            self.kill_actor,
            self.kill_trial,
            self.hang_trial,
            self.kill_node,
        ]

    def kill_actor(self) -> None:
        """End a worker of Ray's."""
        actors = [actor for node in self._cluster.nodes for actor in node.actors()]
        self._end_one(actors)

    def kill_trial(self) -> None:
        """End a trial's own process, or one of its environments'."""
        self._end_one(self.processes())

    def hang_trial(self) -> None:
        """Have a trial's process stand still."""
        found = self.processes()
        if found:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.chance.choice(found).suspend()

    def kill_node(self) -> None:
        """Cut a node's power, and bring up another."""
        node = self.chance.choice(self._cluster.nodes)
        node.kill()
        self._cluster.nodes.remove(node)
        self._cluster.add_node({"CPU": 1})

    def _end_one(self, processes: list[psutil.Process]) -> None:
        if processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                self.chance.choice(processes).kill()


def run_chaos(
    place: Path, cluster: RayCluster, seed: int, faults: int, trials: int
) -> tuple[SweepRecord, int]:
    """Run a whole sweep under faults on a cluster of three nodes; fail if it is not sound.

    Returns its record, and how many faults there were.
    """
    chaos = Chaos(place, cluster, seed, trials)
    try:
        record = chaos.run(faults)
    finally:
        chaos.close()
    wait_until(lambda: not chaos.processes(), 15, "everything to have ended")
    return record, chaos.struck


@contextlib.contextmanager
def three_nodes() -> Iterator[RayCluster]:
    """Have a Ray cluster of a head, which runs no trials, and three nodes with a CPU each."""
    cluster = RayCluster({"CPU": 0})
    try:
        for _ in range(3):
            cluster.add_node({"CPU": 1})
        yield cluster
    finally:
        cluster.stop()


def _run_alone(place: Path, seed: int, faults: int, trials: int) -> tuple[SweepRecord, int]:
    with three_nodes() as cluster:
        return run_chaos(place, cluster, seed, faults, trials)


if __name__ == "__main__":
    run_as_asked(__doc__ or "", _run_alone)
