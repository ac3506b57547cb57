"""A sweep of DIJobs under random faults: the cluster, its jobs and the driver suffer.

    python -m tests.faults.kube_chaos --seed 1 --faults 40

The API server and its etcd are real, the operator and the nodes are the stand-in's, and
pods only pretend to train. Whatever happens, in the end every trial has to be there once,
to have ended once and well, with each evaluation of the attempt that ended once, and
nothing may be left in the namespace or running.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, ClassVar

import psutil
import yaml

from ditk_ray.record.record import SweepRecord, TrialState
from ditk_ray.record.trial_folder import by_attempt, read_metrics
from tests.faults.faulted_sweep import FaultedSweep, run_as_asked
from tests.kube.api_client import DIJOBS, ApiError
from tests.kube.api_server import ApiServer
from tests.kube.leftovers import left_in
from tests.kube.simulated import STEP, training
from tests.kube.stand_in.cluster import StandInCluster
from tests.processes import processes_in, wait_until
from tests.trial import experiments

NAME = "kube_chaos"
EVALUATIONS = 25
"""How many a trial has if nothing happens to it."""

USER = "sweeper"
"""Who runs the sweep, with no more rights than are needed."""

EVERY_SECONDS = 1.0
RIGHTS = Path(__file__).parents[2] / "cluster_configs/rbac.yaml"
TEMPLATE = Path(__file__).parents[1] / "dijob/templates/sweep.yaml"
JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class KubeChaosJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    searcher = "tpe"
    space = {{"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}}
    num_samples = @TRIALS@
    max_concurrent = 4
    retries = {{"lost": 1000, "out_of_memory": 1000}}
"""


class KubeChaos(FaultedSweep):
    """Trials that are DIJobs of one namespace."""

    recovery_seconds: ClassVar[float] = 180.0
    between: ClassVar[tuple[int, int]] = (3, 12)

    def __init__(
        self,
        place: Path,
        kube: ApiServer,
        namespace: str,
        cluster: StandInCluster,
        seed: int,
        trials: int,
        environment: Mapping[str, str],
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._cluster = cluster
        super().__init__(place, NAME, seed, trials, environment)

    def arguments(self) -> list[str]:
        """Write the job, and name it and the cluster."""
        (self.place / "job.py").write_text(JOB.replace("@TRIALS@", str(self.trials)))
        return [
            "--cfg_file", "job.py", "--backend", "dijob", "--dijob_template", str(TEMPLATE),
            "--namespace", self._namespace, "--kubeconfig", str(self._kube.kubeconfig(USER)),
            "--mlflow_uri", "none",
        ]  # fmt: skip

    def processes(self) -> list[psutil.Process]:
        """Return all of the sweep: its driver's Ray, too, if that is its own."""
        return processes_in(self.place)

    def faults(self) -> list[Callable[[], None]]:
        """Return what happens to the cluster, to what runs on it, and to the driver."""
        return [
            self.restart_api_server,
            self.compact_history,
            self.delete_job,
            self.delete_pod,
            self.run_out_of_memory,
            self.evict_pod,
            self.lose_node,
            self.cut_logs,
            self.crash_operator,
            self.kill_driver,
            self.interrupt_driver,
        ]

    def restart_api_server(self) -> None:
        """Have the API server away for a while."""
        self._kube.kill()
        time.sleep(self.chance.uniform(0, 4))
        self._kube.start()

    def compact_history(self) -> None:
        """Have all history forgotten, so that no watch can go on where it was."""
        self._kube.compact()
        self._kube.restart()

    def delete_job(self) -> None:
        """Delete a job that is the sweep's."""
        path = f"{DIJOBS}/namespaces/{self._namespace}/dijobs"
        found = [job["metadata"]["name"] for job in self._kube.admin.get(path)["items"]]
        if found:
            with contextlib.suppress(ApiError):  # the sweep was faster
                self._kube.admin.delete(f"{path}/{self.chance.choice(sorted(found))}")

    def delete_pod(self) -> None:
        """Delete a pod, and leave its job."""
        for pod in self._some_pod():
            with contextlib.suppress(ApiError):
                self._kube.admin.delete(f"api/v1/namespaces/{self._namespace}/pods/{pod}")

    def run_out_of_memory(self) -> None:
        """Have a pod killed for what it uses."""
        for pod in self._some_pod():
            self._cluster.oom_kill(pod)

    def evict_pod(self) -> None:
        """Have a node want a pod's memory back."""
        for pod in self._some_pod():
            self._cluster.evict(pod)

    def lose_node(self) -> None:
        """Lose the node with all that runs, in an old cluster's way or in a newer one's."""
        self._cluster.lose_node(deletes_pods=self.chance.random() < 0.5)

    def cut_logs(self) -> None:
        """Break all streams of logs."""
        self._cluster.cut_logs()

    def crash_operator(self) -> None:
        """Have nobody look after jobs for a while."""
        self._cluster.crash()
        time.sleep(self.chance.uniform(0, 4))
        self._cluster.come_back()

    def _some_pod(self) -> list[str]:
        running = self._cluster.running_pods()
        return [self.chance.choice(running)] if running else []


def run_kube_chaos(
    place: Path,
    kube: ApiServer,
    namespace: str,
    seed: int,
    faults: int,
    trials: int,
    environment: Mapping[str, str] | None = None,
) -> tuple[SweepRecord, int]:
    """Run a whole sweep under faults in an empty namespace; fail if it is not sound.

    Its drivers start a Ray of their own each, unless `environment` leads them to one. Returns
    its record, and how many faults there were.
    """
    here = place / "sweep"
    here.mkdir()
    kube.grant(namespace, USER, _least_rights())
    pods = training(EVALUATIONS, EVERY_SECONDS)
    with StandInCluster(kube, namespace, place / "stand_in", pods) as cluster:
        chaos = KubeChaos(here, kube, namespace, cluster, seed, trials, environment or {})
        try:
            record = chaos.run(faults)
        finally:
            chaos.close()
        require_whole(record)
        require_made_once(kube, namespace)
        cluster.remove_lost_nodes()
        wait_until(lambda: not left_in(kube, namespace), 60, "nothing to be left of the jobs")
        wait_until(lambda: not chaos.processes(), 30, "everything to have ended")
        return record, chaos.struck


def require_whole(record: SweepRecord) -> None:
    """Fail unless every trial ended well, with each evaluation once in its last attempt."""
    expected = [STEP * number for number in range(1, EVALUATIONS + 1)]
    for trial in record.trials.values():
        assert trial.state is TrialState.SUCCEEDED, (trial.id, trial.error)
        last = by_attempt(read_metrics(Path(trial.dir)))[-1]
        assert [row["env_step"] for row in last] == expected, trial.id


def require_made_once(kube: ApiServer, namespace: str) -> None:
    """Fail if a job was made twice: each has the name of one attempt of one trial."""
    made = Counter(
        request.name
        for request in kube.requests(USER)
        if (request.verb, request.resource) == ("create", "dijobs")
        and request.namespace == namespace
        and request.code == 201
        and not request.is_dry_run
    )
    assert made, "the API server's log says nothing of jobs"
    assert max(made.values()) == 1, made


def _least_rights() -> list[dict[str, Any]]:
    documents = yaml.safe_load_all(RIGHTS.read_text())
    return next(list(item["rules"]) for item in documents if item["kind"] == "Role")


def _run_alone(place: Path, seed: int, faults: int, trials: int) -> tuple[SweepRecord, int]:
    (place / "kube").mkdir()
    kube = ApiServer(place / "kube")
    kube.start()
    try:
        kube.admin.create("api/v1/namespaces", {"metadata": {"name": "chaos"}})
        return run_kube_chaos(place, kube, "chaos", seed, faults, trials)
    finally:
        kube.stop()


if __name__ == "__main__":
    run_as_asked(__doc__ or "", _run_alone)
