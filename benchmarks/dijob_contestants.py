"""The two ways of running a sweep of DIJobs that are compared, and what Tune was told, when."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pickle
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ditk_ray.config.options import KubeSettings
from ditk_ray.ray_cluster.nodes import usable_cpus
from ditk_ray.ray_cluster.session import local_ray

CONFIG = "dizoo.classic_control.cartpole.config.cartpole_dqn_config"
NAME = "scale"
POLL_SECONDS = 1.0
_DIJOBS = {"group": "diengine.opendilab.org", "version": "v2alpha1", "plural": "dijobs"}


@dataclass
class Told:
    """What Tune came to know of each trial, by the clock of this machine."""

    started: dict[int, float] = field(default_factory=dict)
    reports: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """The numbers of the evaluations, as they came; without the report of a trial's end."""
    ended: dict[int, tuple[str, float]] = field(default_factory=dict)
    results: dict[int, Any] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    """What was said of those that failed."""
    seconds: float = 0.0

    def note_start(self, trial: int) -> None:
        """Note that a trial runs."""
        self.started.setdefault(trial, time.time())

    def note_report(self, trial: int, metrics: dict[str, Any]) -> None:
        """Note what a trial reported: an evaluation, or its end."""
        self.reports.setdefault(trial, []).append((int(metrics.get("number", 0)), time.time()))

    def note_success(self, trial: int, result: Any) -> None:
        """Note that a trial is over, as its last report told."""
        self.ended[trial] = ("succeeded", time.time())
        self.reports[trial].pop()
        self.results[trial] = result

    def note_failure(self, trial: int, error: str) -> None:
        """Note that a trial failed, and why."""
        self.ended[trial] = ("failed", time.time())
        self.errors[trial] = error.partition("\n")[0]

    def write(self, file: Path) -> None:
        """Write it for `read`."""
        file.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, file: Path) -> Told:
        """Read what another process wrote."""
        found = json.loads(file.read_text())
        seconds = found.pop("seconds")
        by_number = {
            name: {int(trial): value for trial, value in values.items()}
            for name, values in found.items()
        }
        return cls(**by_number, seconds=seconds)


@dataclass(frozen=True)
class Asked:
    """How large a sweep is, and where its jobs go."""

    trials: int
    at_once: int
    kubeconfig: Path
    namespace: str
    template: Path
    folder: Path


def run_ditk_ray(asked: Asked) -> Told:
    """Run a sweep as `ditk-ray tune --backend dijob` does."""
    from ray import tune

    from ditk_ray import JobCfg
    from ditk_ray.config.job_spec import check_job
    from ditk_ray.config.options import SweepOptions
    from ditk_ray.execution.fork_client import ForkClient
    from ditk_ray.record.record import SweepRecord, TrialRecord, TrialState
    from ditk_ray.sweep.prepare import prepared_sweep
    from ditk_ray.sweep.run import run_sweep

    told = Told()

    class Listener:
        def started(self, record: SweepRecord) -> None: ...

        def refreshed(self, record: SweepRecord) -> None: ...

        def ended(self, record: SweepRecord) -> None: ...

        def reported(self, record: SweepRecord, trial: TrialRecord) -> None:
            told.note_report(_number(trial.id), trial.metrics)

        def changed(self, record: SweepRecord, trial: TrialRecord) -> None:
            if trial.state is TrialState.RUNNING:
                told.note_start(_number(trial.id))
            elif trial.state is TrialState.SUCCEEDED:
                told.note_success(_number(trial.id), trial.result)
            elif trial.state.is_final:
                told.note_failure(_number(trial.id), trial.error or str(trial.state))

    fields = {
        "config": CONFIG,
        "space": {"policy.learn.learning_rate": tune.loguniform(1e-4, 1e-2)},
        "num_samples": asked.trials,
        "max_concurrent": asked.at_once,
        "max_same_failures": 0,
        "backend": "dijob",
        "dijob_template": str(asked.template),
    }
    job = check_job(type("ScaleJobCfg", (JobCfg,), fields), {})
    settings = KubeSettings(asked.kubeconfig, namespace=asked.namespace)
    options = SweepOptions(name=NAME, storage_path=asked.folder / "results", seed=0, kube=settings)
    with ForkClient() as warm, prepared_sweep(job, options, warm) as prepared:
        told.seconds = run_sweep(prepared, [Listener()]).seconds
    return told


def run_poller(asked: Asked) -> Told:
    """Run the same jobs by a Tune function that asks for everything once a second.

    Each trial makes its DIJob, then gets it and reads its pod's whole log again and again,
    reports the evaluations that are new in it, and deletes it when its phase is final. The
    actors are used again, as those of ditk_ray are.
    """
    from ray import tune
    from ray.tune.search import BasicVariantGenerator

    from ditk_ray.sweep.observer import error_of

    told = Told()

    class Listener(tune.Callback):
        def on_trial_start(self, iteration: int, trials: Any, trial: Any, **i: Any) -> None:
            told.note_start(trial.config["number"])

        def on_trial_result(
            self, iteration: int, trials: Any, trial: Any, result: Any, **i: Any
        ) -> None:
            told.note_report(trial.config["number"], result)

        def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **i: Any) -> None:
            told.note_success(trial.config["number"], trial.last_result["result"])

        def on_trial_error(self, iteration: int, trials: Any, trial: Any, **i: Any) -> None:
            told.note_failure(trial.config["number"], error_of(trial))

    def poll(config: dict[str, Any]) -> None:
        result = None
        for evaluations, found in polled(asked, config["number"]):
            result = found
            for metrics in evaluations:
                tune.report(metrics)
        tune.report({"result": result})

    # As many again wait: Tune keeps an actor only if a trial waits for one.
    search = BasicVariantGenerator(max_concurrent=2 * asked.at_once)
    share = int(10_000 * usable_cpus() / asked.at_once) / 10_000
    os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = str(asked.at_once)
    tuner = tune.Tuner(
        tune.with_resources(poll, {"cpu": share}),
        param_space={"number": tune.grid_search(list(range(asked.trials)))},
        tune_config=tune.TuneConfig(search_alg=search, reuse_actors=True),
        run_config=tune.RunConfig(
            name="tune", storage_path=str(asked.folder), callbacks=[Listener()], verbose=0
        ),
    )
    with local_ray():
        begun = time.monotonic()
        tuner.fit()
        told.seconds = time.monotonic() - begun
    return told


def polled(asked: Asked, number: int) -> Iterator[tuple[list[dict[str, Any]], Any]]:
    """Run a job; yield, once a second, what is new in its log, and its result if it has one."""
    from kubernetes import client, config

    connection = config.new_client_from_config(str(asked.kubeconfig))
    jobs, core = client.CustomObjectsApi(connection), client.CoreV1Api(connection)
    manifests = _manifests(asked, number)
    where = {**_DIJOBS, "namespace": asked.namespace}
    jobs.create_namespaced_custom_object(**where, body=manifests.dijob)
    core.create_namespaced_config_map(asked.namespace, manifests.config_map)
    seen, phase = 0, ""
    while phase not in ("Succeeded", "Failed"):
        time.sleep(POLL_SECONDS)
        job = jobs.get_namespaced_custom_object(**where, name=manifests.name)
        phase = job.get("status", {}).get("phase", "")
        log = ""
        with contextlib.suppress(client.ApiException):  # its container does not run yet
            log = core.read_namespaced_pod_log(f"{manifests.name}-serial-0", asked.namespace)
        evaluations, result = _said(log)
        yield evaluations[seen:], result
        seen = len(evaluations)
    jobs.delete_namespaced_custom_object(**where, name=manifests.name)
    if phase == "Failed":
        raise RuntimeError(f"{manifests.name} failed")


CONTESTANTS = {"ditk_ray": run_ditk_ray, "poller": run_poller}


def _manifests(asked: Asked, number: int) -> Any:
    from ditk_ray.dijob.jobs import JobIdentity
    from ditk_ray.dijob.manifests import render_job
    from ditk_ray.dijob.template import read_template

    identity = JobIdentity("poller-000000", f"trial_{number:05d}")
    template = read_template(asked.template)
    return render_job(template, identity, "pass\n", {}, asked.namespace)


def _said(log: str) -> tuple[list[dict[str, Any]], Any]:
    from ditk_ray.dijob.pod_runner import MARK

    evaluations: list[dict[str, Any]] = []
    result = None
    for line in log.splitlines():
        if line.startswith(MARK):
            said = json.loads(line.removeprefix(MARK))
            if said["kind"] == "evaluation":
                evaluations.append(said["metrics"])
            elif said["kind"] == "result":
                result = pickle.loads(base64.b64decode(said["data"]))
    return evaluations, result


def _number(trial: str) -> int:
    return int(trial.rpartition("_")[2])
