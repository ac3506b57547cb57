"""Whole sweeps whose trials are DIJobs: a real API server, real Tune, a stand-in operator.

Where a test is not about the training itself, pods only pretend to train.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml
from ray import tune

from ditk_ray import JobCfg
from ditk_ray.config.options import KubeSettings
from ditk_ray.errors import BadConfigError, KubeForbiddenError
from ditk_ray.execution.fork_client import SHARED_KEY
from ditk_ray.record.record import TrialState, read_record
from ditk_ray.record.sweep_folder import Action, Request, ask
from ditk_ray.record.trial_folder import own_metrics_of, read_metrics
from ditk_ray.trial.reports import standing
from tests.kube.api_client import DIJOBS
from tests.kube.api_server import ApiServer
from tests.kube.leftovers import left_in
from tests.kube.simulated import training
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated
from tests.processes import PATIENCE, wait_until
from tests.trial import experiments

pytestmark = [pytest.mark.kube, pytest.mark.ray]

TEMPLATE = Path(__file__).with_name("templates") / "sweep.yaml"
RBAC = Path(__file__).parents[2] / "cluster_configs/rbac.yaml"
RIGHTS = list(yaml.safe_load_all(RBAC.read_text()))


class Cartpole(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.grid_search([1e-3, 3e-3])}
    max_env_step = 600
    max_concurrent = 2


class Pretended(JobCfg):
    config = experiments.CARTPOLE
    space: ClassVar[Any] = {"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}
    num_samples = 3
    max_concurrent = 3


@pytest.fixture
def dijobs(kube: ApiServer, namespace: str, sweep: Callable[..., Any]) -> Callable[..., Any]:
    """Run a job's trials as DIJobs and return the sweep's outcome."""

    def run(job: type[JobCfg], user: str = "admin", **changes: Any) -> Any:
        settings = KubeSettings(kube.kubeconfig(user), namespace=namespace)
        options = {key: changes.pop(key) for key in ("name", "keep_dijobs") if key in changes}
        given = {"backend": "dijob", "dijob_template": str(TEMPLATE), **changes}
        return sweep(type(job.__name__, (job,), given), kube=settings, **options)

    return run


@pytest.fixture
def pretending(
    kube: ApiServer, namespace: str, tmp_path: Path
) -> Iterator[Callable[..., StandInCluster]]:
    """Start a stand-in whose pods do what they are told."""
    started: list[StandInCluster] = []

    def start(simulate: Callable[[Any], Simulated | None]) -> StandInCluster:
        cluster = StandInCluster(kube, namespace, tmp_path / "stand_in", simulate)
        started.append(cluster)
        return cluster

    yield start
    for cluster in started:
        cluster.close()


@pytest.fixture
def left(kube: ApiServer, namespace: str) -> Callable[[], list[str]]:
    """Return what there is in the namespace that nobody would want to find there."""

    return lambda: left_in(kube, namespace)


def scores(outcome: Any, trial: str) -> list[Any]:
    rows = [own_metrics_of(row) for row in read_metrics(outcome.folder / trial)]
    return [(row["env_step"], row["eval_value"], row["eval_value_std"]) for row in rows]


def steps(folder: Path) -> list[int]:
    return [int(row["env_step"]) for row in standing(read_metrics(folder))]


def result_of(outcome: Any, trial: str) -> dict[str, Any]:
    result = outcome.record.trials[trial].result
    return {key: value for key, value in result.items() if key != "finish_time"}


def endless_at_first(pod: Any) -> Simulated:
    """Have only what runs again come to an end."""
    is_first = pod["metadata"]["labels"]["diengine/job"].endswith("-0")
    return training(10_000 if is_first else 3)(pod)


def in_background(function: Callable[..., Any], *arguments: Any, **more: Any) -> Callable[[], Any]:
    """Start something; return what waits for its outcome."""
    outcomes: list[Any] = []
    thread = threading.Thread(target=lambda: outcomes.append(function(*arguments, **more)))
    thread.start()

    def outcome() -> Any:
        thread.join(120 * PATIENCE)
        return outcomes[0]

    return outcome


def test_a_trial_scores_on_kubernetes_what_it_scores_here(dijobs, sweep, stand_in, left):
    there = dijobs(Cartpole, name="there")
    here = sweep(Cartpole, name="here")
    assert there.succeeded
    for trial in ("trial_00000", "trial_00001"):
        assert scores(there, trial) == scores(here, trial)
        assert result_of(there, trial) == result_of(here, trial)
    log = (there.folder / "trial_00000/attempt_0/log.txt").read_text()
    assert "::ditk-ray::" not in log
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_a_training_that_is_stopped_early_leaves_nothing(dijobs, pretending, left):
    pretending(training(500))
    outcome = dijobs(Pretended, num_samples=2, stopper="env_step>=300")
    for trial in outcome.record.trials.values():
        assert trial.state is TrialState.STOPPED
        assert steps(outcome.folder / trial.id) == [100, 200, 300]
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_every_evaluation_arrives_once_while_the_api_server_is_restarted_and_compacted(
    dijobs, pretending, kube, tmp_path, left
):
    pretending(training(15, every=0.4))
    folder = tmp_path / "results" / "Pretended"
    outcome = in_background(dijobs, Pretended)
    # Pods of a job that are made while the server starts would be refused, and the job fail.
    wait_until(lambda: len(list(folder.glob("*/metrics.jsonl"))) == 3, 60, "evaluations of all")
    kube.compact()
    kube.restart()
    done = outcome()
    assert done.record.status == "finished"
    for trial in done.record.trials.values():
        assert trial.failures == []
        assert steps(done.folder / trial.id) == [100 * n for n in range(1, 16)]
    wait_until(lambda: not left(), 30, f"all to be gone: {left()}")


def test_a_job_that_somebody_deletes_is_a_lost_trial_and_is_run_again(
    dijobs, pretending, kube, namespace, tmp_path, left
):
    pretending(endless_at_first)
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    outcome = in_background(dijobs, Pretended, num_samples=1)
    folder = tmp_path / "results" / "Pretended"
    wait_until(lambda: list(folder.glob("*/metrics.jsonl")), 60, "an evaluation")
    (job,) = kube.admin.get(path)["items"]
    kube.admin.delete(f"{path}/{job['metadata']['name']}")
    done = outcome()
    (trial,) = done.record.trials.values()
    assert trial.state is TrialState.SUCCEEDED
    assert [failure["kind"] for failure in trial.failures] == ["lost"]
    assert "deleted externally" in trial.failures[0]["error"]
    assert steps(done.folder / trial.id) == [100, 200, 300]
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_jobs_that_cannot_start_fail_with_the_reason(dijobs, pretending, left):
    cluster = pretending(training(3))
    cluster.fail_to_pull("*-00000-*")
    cluster.never_schedule("*-00001-*")
    outcome = dijobs(
        Pretended, num_samples=2, startup_time=2 + 2 * min(PATIENCE, 3), retries={"not_started": 0}
    )
    reasons = {"trial_00000": "manifest unknown", "trial_00001": "Insufficient cpu"}
    for name, reason in reasons.items():
        trial = outcome.record.trials[name]
        assert trial.state is TrialState.FAILED
        assert trial.failures[-1]["kind"] == "not_started"
        assert reason in trial.error
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_a_pod_that_ran_out_of_memory_is_run_again_with_more(dijobs, pretending, kube, namespace):
    cluster = pretending(endless_at_first)
    memory = {"cpu": 1, "memory": "1G", "max_memory": "2G"}
    outcome = in_background(dijobs, Pretended, num_samples=1, resources=memory)
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"

    def job() -> Any:
        return next(iter(kube.admin.get(path)["items"]), None)

    first = wait_until(job, 60, "the job")
    cluster.wait_for_phase(first["metadata"]["name"], "Running")
    cluster.oom_kill(f"{first['metadata']['name']}-serial-0")
    again = wait_until(
        lambda: (found := job()) and found["metadata"]["uid"] != first["metadata"]["uid"] and found,
        30,
        "the next attempt",
    )
    limits = [
        one["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"]["limits"]
        for one in (first, again)
    ]
    amounts = [limit["memory"] for limit in limits]
    assert amounts[0] != amounts[1]
    (trial,) = outcome().record.trials.values()
    assert [failure["kind"] for failure in trial.failures] == ["out_of_memory"]
    assert trial.state is TrialState.SUCCEEDED


def test_seeds_are_jobs_of_their_own_and_the_score_is_their_mean(dijobs, pretending, left):
    def simulate(pod: Any) -> Simulated:
        names = {one["name"]: one["value"] for one in pod["spec"]["containers"][0]["env"]}
        return training(4 if names["DITK_RAY_SEED"] == "0" else 2)(pod)

    pretending(simulate)
    outcome = dijobs(Pretended, num_samples=1, seeds=2)
    (trial,) = outcome.record.trials.values()
    assert trial.state is TrialState.SUCCEEDED
    rows = read_metrics(outcome.folder / trial.id)
    assert [row["eval_value"] for row in rows] == [1.0, 2.0, 2.5, 3.0]
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_a_trial_is_cancelled_and_its_job_with_it(dijobs, pretending, tmp_path, left):
    pretending(training(500))
    folder = tmp_path / "results" / "Pretended"
    outcome = in_background(dijobs, Pretended, num_samples=1)
    wait_until(lambda: list(folder.glob("*/metrics.jsonl")), 60, "an evaluation")
    assert ask(folder, Request(Action.CANCEL, "trial_00000", None)).is_done
    (trial,) = outcome().record.trials.values()
    assert trial.state is TrialState.STOPPED
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_failed_jobs_stay_if_they_are_to_be_kept(dijobs, pretending, left):
    pretending(lambda pod: Simulated([(0.1, "Segmentation fault")], exit_code=139))
    outcome = dijobs(Pretended, num_samples=1, keep_dijobs="failed")
    (trial,) = outcome.record.trials.values()
    assert trial.state is TrialState.FAILED
    assert "139" in trial.error
    assert "Segmentation fault" in (outcome.folder / trial.id / "attempt_0/log.txt").read_text()
    assert [item for item in left() if item.startswith("dijobs/")]


def test_what_the_cluster_refuses_is_said_before_anything_is_made(dijobs, tmp_path):
    with pytest.raises(KubeForbiddenError, match="lacks permissions in namespace") as refused:
        dijobs(Pretended, user="nobody")
    for missing in ("create dijobs", "watch pods", "get pods/log", "delete configmaps"):
        assert missing in str(refused.value)
    assert not (tmp_path / "results").exists()


def test_a_scheduler_that_pauses_trials_is_refused(dijobs):
    with pytest.raises(BadConfigError, match="pauses trials, which cannot resume"):
        dijobs(Pretended, scheduler="hyperband", max_env_step=1000)


JOB = f"""
from ray import tune
from ditk_ray import JobCfg

class KubeJobCfg(JobCfg):
    config = {experiments.CARTPOLE!r}
    space = {{"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)}}
    num_samples = 2
"""


def test_a_killed_driver_is_resumed_and_adopts_the_jobs_that_run(
    driver, pretending, kube, namespace, tmp_path, left, ray_address
):
    pretending(training(24, every=0.5))
    (tmp_path / "job.py").write_text(JOB)
    running = driver(
        "tune", "--cfg_file", "job.py", "--name", "killed", "--backend", "dijob",
        "--dijob_template", str(TEMPLATE), "--namespace", namespace,
        "--kubeconfig", str(kube.kubeconfig()), RAY_ADDRESS=ray_address,
    )  # fmt: skip
    folder = tmp_path / "ditk_ray_results/killed"
    both = lambda: len(list(folder.glob("*/metrics.jsonl"))) == 2  # noqa: E731
    wait_until(both, 150, "both trials to evaluate")
    running.kill()
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    assert len(kube.admin.get(path)["items"]) == 2, "they go on without a driver"
    resumed = driver("resume", "killed", RAY_ADDRESS=ray_address)
    out, _ = resumed.communicate(timeout=120 * PATIENCE)
    assert resumed.returncode == 0, out
    record = read_record(folder)
    for trial in record.trials.values():
        assert trial.state is TrialState.SUCCEEDED
        assert steps(folder / trial.id) == [100 * n for n in range(1, 25)]
        assert [one.name for one in (folder / trial.id).glob("attempt_*")] == ["attempt_0"]
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_a_sweep_inside_the_cluster_needs_no_kubeconfig(
    pretending, kube, namespace, tmp_path, left, warm
):
    """The files of the service account are put where Kubernetes puts them, for it alone."""
    pretending(training(3))
    (tmp_path / "job.py").write_text(JOB)
    account = tmp_path / "account"
    account.mkdir()
    role = next(item for item in RIGHTS if item["kind"] == "Role")
    kube.grant(namespace, f"system:serviceaccount:{namespace}:ditk-ray", role["rules"])
    (account / "token").write_text(kube.service_account(namespace, "ditk-ray"))
    (account / "ca.crt").write_bytes(Path(kube.authority.certificate).read_bytes())
    (account / "namespace").write_text(namespace)
    place = "/var/run/secrets/kubernetes.io/serviceaccount"
    command = (
        f"mount -t tmpfs none /var/run && mkdir -p {place} && cp {account}/* {place} && exec "
        f"{Path(sys.executable).with_name('ditk-ray')} tune --cfg_file job.py --backend dijob "
        f"--dijob_template {TEMPLATE} --mlflow_uri none --name inside"
    )
    host, _, port = kube.url.removeprefix("https://").partition(":")
    inside = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port}
    own = {key: value for key, value in os.environ.items() if key != "KUBECONFIG"}
    shown = subprocess.run(
        ["unshare", "--mount", "bash", "-c", command],
        cwd=tmp_path,
        env={**own, "HOME": str(tmp_path), SHARED_KEY: warm.key, **inside},
        capture_output=True,
        text=True,
        timeout=200 * PATIENCE,
    )
    assert shown.returncode == 0, shown.stderr
    record = read_record(tmp_path / "ditk_ray_results/inside")
    assert record.job["dijobs"]["namespace"] == namespace
    wait_until(lambda: not left(), 15, f"all to be gone: {left()}")


def test_the_plan_shows_the_manifests_of_the_first_trial(cli, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    shown = cli(
        "tune", "--cfg_file", "job.py", "--backend", "dijob", "--dijob_template", str(TEMPLATE),
        "--namespace", "rl", "--plan", "--format", "json",
    )  # fmt: skip
    assert shown.returncode == 0, shown.stderr
    plan = json.loads(shown.stdout)
    ((dijob, config_map),) = plan["first_jobs"]
    assert dijob["metadata"]["namespace"] == "rl"
    assert dijob["spec"]["backoffLimit"] == 0
    assert dijob["metadata"]["name"] == config_map["metadata"]["name"]
    compile(config_map["data"]["config.py"], "config.py", "exec")


def test_a_backend_without_its_template_is_refused_on_one_screen(cli, tmp_path):
    (tmp_path / "job.py").write_text(JOB)
    shown = cli("tune", "--cfg_file", "job.py", "--backend", "dijob")
    assert shown.returncode == 2
    assert "--dijob_template FILE" in shown.stderr
    assert "Traceback" not in shown.stderr
