"""The jobs of a sweep, from submission to their end, through whatever goes wrong on the way."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.config.options import KubeSettings
from ditk_ray.config.terms import FailureKind
from ditk_ray.dijob.jobs import ALIVE_AT, heartbeat_name
from ditk_ray.dijob.manifests import JobManifests
from ditk_ray.dijob.sweep_jobs import SweepJobs
from ditk_ray.dijob.tracker import JobEvent, Message, Phase
from ditk_ray.errors import KubeConflictError, KubeForbiddenError
from ditk_ray.execution.executor import Ended, Evaluated, Waiting
from ditk_ray.kube.connection import Kube, Right, connect, is_allowed
from tests.kube.api_server import ApiServer
from tests.kube.stand_in.cluster import StandInCluster
from tests.kube.stand_in.containers import Simulated
from tests.processes import PATIENCE, wait_until

pytestmark = pytest.mark.kube

KEY = "sweep-abc123"


def order(
    name: str,
    commands: tuple[str, ...] = ("true",),
    spec: dict[str, Any] | None = None,
    trial: str = "trial_00000",
) -> JobManifests:
    """Make a job with a shell command for each task, and its ConfigMap."""
    metadata = {"name": name, "labels": {"ditk-ray/sweep": KEY, "ditk-ray/trial": trial}}
    tasks = []
    for kind, command in zip(("learner", "collector"), commands, strict=False):
        container: dict[str, Any] = {"name": "di-container", "image": "none"}
        container["command"] = ["bash", "-c", command]
        pod = {"containers": [container], "terminationGracePeriodSeconds": 1}
        tasks.append({"type": kind, "template": {"spec": pod}})
    dijob = {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": metadata,
        "spec": {"backoffLimit": 0, "tasks": tasks, **(spec or {})},
    }
    return JobManifests(name, dijob, {"metadata": metadata, "data": {"config.py": ""}})


def marked(n: int, kind: str = "evaluation", **said: Any) -> str:
    if kind == "evaluation":
        said.setdefault("metrics", {"eval_value": float(n), "time": time.time()})
    if kind == "end":
        said.setdefault("returned", {})
    return "::ditk-ray:: " + json.dumps({"n": n, "kind": kind, **said})


def training(
    evaluations: int,
    pause: float = 0.1,
    before_end: Callable[[], object] = lambda: None,
) -> Simulated:
    def lines() -> Iterator[tuple[float, str]]:
        yield 0.0, "hello"
        for n in range(1, evaluations + 1):
            yield pause, f"step {n}"
            yield 0.0, marked(n)  # after the pause, so that its time is that of its writing
        before_end()
        yield 0.0, marked(evaluations + 1, "end")

    return Simulated(lines())


class Sweep:
    """A SweepJobs on a stand-in whose pods play scripts."""

    def __init__(self, kube: ApiServer, namespace: str, folder: Path) -> None:
        self.kube = kube
        self.namespace = namespace
        self.folder = folder
        self.scripts: dict[str, Callable[[], Simulated]] = {}
        self.stand_in = StandInCluster(kube, namespace, folder / "stand_in", self._script)
        self.cluster = self.connect()
        self.watch = SweepJobs(self.cluster, KEY)

    def connect(self) -> Kube:
        return connect(
            KubeSettings(self.kube.kubeconfig(namespace=self.namespace)), patience=60 * PATIENCE
        )

    def log(self, name: str) -> Path:
        return self.folder / "logs" / f"{name}.log"

    def submit(self, name: str, script: Callable[[], Simulated] | None = None, **spec: Any) -> None:
        if script is not None:
            self.scripts[name] = script
        assert self.watch.submit(order(name, spec=spec), self.log(name))

    def all_events(
        self, name: str, seconds: float = 40, watch: SweepJobs | None = None
    ) -> list[JobEvent]:
        """Return the events of a job to its last, asked for as a consumer does."""
        events: list[JobEvent] = []
        end = time.monotonic() + seconds * PATIENCE
        while not events or not isinstance(events[-1], Ended):
            assert time.monotonic() < end, events
            events += (watch or self.watch).events(name, len(events), 5)
        return events

    def wait_for_line(self, name: str, line: str) -> None:
        """Wait until the log of the job has a line: from then on its pod's log is read."""
        has_line = lambda: self.log(name).exists() and line in self.log(name).read_text()  # noqa: E731
        wait_until(has_line, 20, f"{line!r} of {name}")

    def wait_for(self, name: str, kind: type, seconds: float = 20) -> Any:
        found: list[Any] = []

        def look() -> bool:
            found[:] = [e for e in self.watch.events(name, 0, 0) if isinstance(e, kind)]
            return bool(found)

        wait_until(look, seconds, f"{kind.__name__} of {name}")
        return found[-1]

    def close(self) -> None:
        self.watch.close(20)
        self.stand_in.close()
        self.cluster.close()

    def _script(self, pod: dict[str, Any]) -> Simulated | None:
        make = self.scripts.get(pod["metadata"]["labels"]["diengine/job"])
        return make() if make else None


@pytest.fixture
def sweep(kube: ApiServer, namespace: str, tmp_path: Path) -> Iterator[Sweep]:
    sweep = Sweep(kube, namespace, tmp_path)
    yield sweep
    kube.start()
    sweep.close()
    wait_until(lambda: not own_threads(), 10, "the threads to end")


def own_threads() -> list[str]:
    names = [thread.name for thread in threading.enumerate()]
    return [name for name in names if name.startswith(("watch-", "log-", "kube-"))]


def numbers(events: list[JobEvent]) -> list[int]:
    return [event.n for event in events if isinstance(event, Message)]


def gone(name: str) -> Ended:
    error = f"the job {name} was deleted externally"
    return Ended("failed", error=error, failure=FailureKind.LOST)


def test_a_job_tells_its_phases_messages_and_end_in_order(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(3))
    events = sweep.all_events("job")
    assert numbers(events) == [1, 2, 3, 4]
    assert events[-1] == Ended()
    phases = [event.phase for event in events if isinstance(event, Phase)]
    assert phases[-1] == "Succeeded" and "Running" in phases
    [last] = [event for event in events if isinstance(event, Message) and event.n == 4]
    assert last.said == Ended() and last.pod == "job-learner-0"
    assert sweep.log("job").read_text() == "hello\nstep 1\nstep 2\nstep 3\n"
    assert sweep.watch.events("job", len(events), 5) == []
    owner = sweep.cluster.config_maps.get("job")["metadata"]["ownerReferences"][0]
    assert owner["uid"] == sweep.cluster.dijobs.get("job")["metadata"]["uid"]


def test_a_message_arrives_while_the_pod_runs_and_quickly(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(10, pause=0.2))
    lags, seen = [], 0
    while not (events := sweep.watch.events("job", seen, 20)) or seen < 8:
        for event in events:
            if isinstance(event, Message) and isinstance(event.said, Evaluated):
                lags.append(time.time() - event.said.metrics["time"])
        seen += len(events)
    assert sorted(lags)[len(lags) // 2] < 0.3 * PATIENCE


def test_a_job_costs_few_requests(sweep: Sweep) -> None:
    names = [f"job-{number}" for number in range(5)]
    wait_until(
        lambda: sweep.kube.request_counts("admin")[("create", "configmaps")] > 0, 10, "a heartbeat"
    )
    before = sum(sweep.kube.request_counts("admin").values())
    for name in names:
        sweep.submit(name, lambda: training(5))
    for name in names:
        sweep.all_events(name)
        sweep.watch.release(name)
    wait_until(lambda: not sweep.cluster.dijobs.list(), 10, "the jobs to be deleted")
    counts = sweep.kube.request_counts("admin")
    listing = counts[("list", "dijobs")]
    assert sum(counts.values()) - before - listing <= 4 * len(names) + 2, counts


def test_nothing_is_lost_or_doubled_when_the_api_server_restarts(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(60, pause=0.1))
    sweep.wait_for("job", Message)
    sweep.kube.kill()
    time.sleep(0.5)
    seen = len(sweep.watch.events("job", 0, 0))
    sweep.kube.start()
    wait_until(lambda: len(sweep.watch.events("job", 0, 0)) > seen, 20, "more of its events")
    sweep.kube.compact()
    sweep.kube.restart()
    events = sweep.all_events("job", 60)
    assert numbers(events) == list(range(1, 62))
    assert events[-1] == Ended()
    steps = [line for line in sweep.log("job").read_text().splitlines() if "step" in line]
    assert steps == [f"step {n}" for n in range(1, 61)]


def test_a_job_that_ends_while_the_api_server_is_away_is_known_when_it_is_back(
    sweep: Sweep,
) -> None:
    is_away = threading.Event()
    wait = lambda: is_away.wait(60 * PATIENCE)  # noqa: E731
    sweep.submit("job", lambda: training(3, before_end=wait))
    sweep.wait_for("job", Message)
    sweep.kube.kill()
    is_away.set()
    time.sleep(1)
    sweep.kube.start()
    events = sweep.all_events("job")
    assert numbers(events) == [1, 2, 3, 4] and events[-1] == Ended()


def test_cut_log_streams_are_taken_up_where_they_broke(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(40, pause=0.05))
    sweep.wait_for("job", Message)
    for _ in range(6):
        sweep.stand_in.cut_logs()
        time.sleep(0.3)
    events = sweep.all_events("job")
    assert numbers(events) == list(range(1, 42)) and events[-1] == Ended()
    assert sweep.log("job").read_text().count("step") == 40


def test_a_job_that_ends_at_once_and_leaves_no_pod_still_ends(sweep: Sweep) -> None:
    for number in range(5):
        sweep.submit(f"job-{number}", lambda: training(2, pause=0), cleanPodPolicy="All")
    for number in range(5):
        events = sweep.all_events(f"job-{number}")
        finished = events[-1]
        assert isinstance(finished, Ended) and finished.kind == "finished"
        assert numbers(events) == [1, 2, 3] or "could not be read" in finished.error


def test_a_job_without_a_pod_left_has_all_its_messages_if_it_lived_for_a_moment(
    sweep: Sweep,
) -> None:
    read = lambda: sweep.wait_for_line("job", "step 3")  # noqa: E731
    sweep.submit("job", lambda: training(3, pause=0, before_end=read), cleanPodPolicy="All")
    events = sweep.all_events("job")
    assert numbers(events) == [1, 2, 3, 4] and events[-1] == Ended()


def test_a_job_deleted_by_somebody_else_is_gone(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(100))
    sweep.wait_for("job", Message)
    sweep.connect().dijobs.delete("job")
    assert sweep.all_events("job")[-1] == gone("job")
    assert not sweep.watch.follow("none", sweep.log("none"))
    assert sweep.watch.events("none", 0, 5) == [gone("none")]


def test_another_watch_takes_up_running_and_finished_jobs_from_their_beginning(
    sweep: Sweep,
) -> None:
    sweep.submit("done", lambda: training(2))
    sweep.submit("running", lambda: training(30))
    sweep.all_events("done")
    sweep.wait_for("running", Message)
    other_cluster = sweep.connect()
    other = SweepJobs(other_cluster, KEY)
    for name, count in (("done", 2), ("running", 30)):
        assert other.follow(name, sweep.folder / f"{name}.log")
        events = sweep.all_events(name, watch=other)
        assert numbers(events) == list(range(1, count + 2)) and events[-1] == Ended()
        assert (sweep.folder / f"{name}.log").read_text() == sweep.log(name).read_text()
    assert other.submit(order("done"), sweep.log("done"))
    other.stop()
    assert len(sweep.cluster.dijobs.list()) == 2


def test_a_job_that_runs_already_is_heard_of_at_once_when_it_is_submitted_again(
    sweep: Sweep,
) -> None:
    """As after a driver that was killed before the first evaluation was reported."""
    sweep.submit("running", lambda: training(1000))
    sweep.wait_for("running", Message)
    other_cluster = sweep.connect()
    other = SweepJobs(other_cluster, KEY)
    assert other.submit(order("running"), sweep.folder / "other.log")
    heard = lambda: numbers(other.events("running", 0, 0))  # noqa: E731
    wait_until(heard, 20, "what it says")
    other.stop()
    other_cluster.close()


def test_pods_that_may_not_be_listed_just_now_are_not_taken_for_gone(
    sweep: Sweep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ditk_ray.dijob.sweep_jobs._REFUSED_SECONDS", 0.3)
    everything = {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}
    no_lists = {**everything, "verbs": ["create", "get", "watch", "patch", "delete"]}
    sweep.kube.grant(sweep.namespace, "ranger", [everything])
    cluster = connect(KubeSettings(sweep.kube.kubeconfig("ranger", sweep.namespace)))
    wait_until(lambda: is_allowed(cluster, Right("", "pods", "watch")), 10, "the rights")
    other = SweepJobs(cluster, KEY)
    sweep.submit("running", lambda: training(1000))
    sweep.wait_for("running", Message)
    sweep.kube.grant(sweep.namespace, "ranger", [no_lists])
    wait_until(lambda: not is_allowed(cluster, Right("", "pods", "list")), 10, "a right to go")
    assert other.follow("running", sweep.folder / "other.log")
    time.sleep(0.6)
    sweep.kube.grant(sweep.namespace, "ranger", [everything])
    wait_until(lambda: numbers(other.events("running", 0, 0)), 30, "what the pod says")
    other.stop()
    cluster.close()


def test_what_another_life_kept_is_kept_by_the_phase_of_the_job(sweep: Sweep) -> None:
    sweep.submit("failed", lambda: Simulated([(0.1, "oh")], 3))
    sweep.submit("done", lambda: training(1))
    sweep.submit("running", lambda: training(1000))
    sweep.wait_for("running", Message)
    for name in ("failed", "done"):
        sweep.all_events(name)
        sweep.watch.release(name, is_kept=True)
    other_cluster = sweep.connect()
    other = SweepJobs(other_cluster, KEY, keep="failed")
    assert other.close(20) == []
    assert [job["metadata"]["name"] for job in sweep.cluster.dijobs.list()] == ["failed"]
    other_cluster.close()


def test_a_submission_is_repeated_without_harm_but_not_over_anothers_job(sweep: Sweep) -> None:
    sweep.cluster.dijobs.create(order("job").dijob)
    sweep.scripts["job"] = lambda: training(1)
    sweep.submit("job")
    sweep.submit("job")
    assert sweep.all_events("job")[-1] == Ended()
    assert sweep.cluster.config_maps.get("job")
    sweep.cluster.dijobs.create(order("other", trial="trial_00007").dijob)
    with pytest.raises(KubeConflictError, match="another DIJob 'other'"):
        sweep.submit("other")


def test_a_released_job_is_deleted_also_when_the_api_server_is_away(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(1000))
    sweep.submit("kept", lambda: training(1))
    sweep.wait_for("job", Message)
    sweep.all_events("kept")
    waiting = ThreadPoolExecutor(1).submit(sweep.watch.events, "job", 10_000, 60)
    sweep.kube.kill()
    begun = time.monotonic()
    sweep.watch.release("job")
    sweep.watch.release("kept", is_kept=True)
    waiting.result(5 * PATIENCE)
    assert time.monotonic() - begun < 2 * PATIENCE
    assert sweep.watch.events("job", 0, 5) == []
    sweep.kube.start()
    there = lambda: [job["metadata"]["name"] for job in sweep.cluster.dijobs.list()]  # noqa: E731
    wait_until(lambda: there() == ["kept"], 20, "the job to go")
    # The cluster's garbage collector looks for kinds that it missed every half a minute.
    wait_until(lambda: not sweep.stand_in.pods("job"), 90, "the pod to go")
    assert sweep.watch.close(20) == []
    assert [job["metadata"]["name"] for job in sweep.cluster.dijobs.list()] == ["kept"]


def test_a_job_is_not_taken_for_deleted_while_the_api_server_does_not_know_its_kind(
    sweep: Sweep,
) -> None:
    """As it is for a moment after the API server has started."""
    sweep.submit("running", lambda: training(1000))
    sweep.submit("released", lambda: training(1000))
    sweep.wait_for("running", Message)
    with sweep.kube.without_dijobs():
        sweep.watch.release("released")
        time.sleep(1)
        assert not any(isinstance(event, Ended) for event in sweep.watch.events("running", 0, 0))
    there = lambda: [job["metadata"]["name"] for job in sweep.cluster.dijobs.list()]  # noqa: E731
    wait_until(lambda: there() == ["running"], 20, "the job to go")
    seen = len(sweep.watch.events("running", 0, 0))
    assert any(isinstance(event, Message) for event in sweep.watch.events("running", seen, 20))


def test_a_living_sweep_has_a_sign_of_life_which_goes_at_its_end(sweep: Sweep) -> None:
    name = heartbeat_name(KEY)
    maps = lambda: {each["metadata"]["name"]: each for each in sweep.cluster.config_maps.list()}  # noqa: E731
    wait_until(lambda: name in maps(), 10, "a heartbeat")
    assert maps()[name]["metadata"]["annotations"][ALIVE_AT].endswith("Z")
    sweep.submit("left", lambda: training(1000))
    assert sweep.watch.close(20) == []
    assert name not in maps() and sweep.cluster.dijobs.list() == []


def test_what_a_job_failed_of_is_known_although_its_pod_is_deleted(sweep: Sweep) -> None:
    def fails() -> Simulated:
        def lines() -> Iterator[tuple[float, str]]:
            yield 0.0, "hello"
            sweep.wait_for_line("error", "hello")
            yield 0.0, marked(1, "error", message="no disk", failure="disk_full")

        return Simulated(lines(), 1)

    sweep.submit("error", fails, cleanPodPolicy="All")
    sweep.submit("crash", lambda: Simulated([(0.3, "Traceback")], 3), cleanPodPolicy="All")
    sweep.submit("memory", lambda: training(1000), cleanPodPolicy="All")
    sweep.submit("evicted", lambda: training(1000))
    sweep.wait_for("memory", Message)
    sweep.stand_in.oom_kill("memory-learner-0")
    sweep.wait_for("evicted", Message)
    sweep.stand_in.evict("evicted-learner-0")
    ends = {name: sweep.all_events(name)[-1] for name in ("error", "crash", "memory", "evicted")}
    assert ends["error"] == Ended("failed", error="no disk", failure=FailureKind.DISK_FULL)
    crash = "pod crash-learner-0 ended with exit code 3"
    assert ends["crash"] == Ended("failed", error=crash, failure=FailureKind.BUG)
    kinds = [end.failure for end in ends.values() if isinstance(end, Ended)]
    assert kinds[2:] == [FailureKind.OUT_OF_MEMORY, FailureKind.LOST]


def test_a_lost_node_is_a_lost_job(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(1000))
    sweep.wait_for("job", Message)
    sweep.stand_in.lose_node()
    finished = sweep.all_events("job")[-1]
    assert isinstance(finished, Ended) and finished.failure is FailureKind.LOST


def test_why_a_job_does_not_start_is_told(sweep: Sweep) -> None:
    sweep.stand_in.never_schedule("big")
    sweep.stand_in.fail_to_pull("wrong")
    sweep.submit("big", lambda: training(1))
    sweep.submit("wrong", lambda: training(1))
    assert "Insufficient cpu" in sweep.wait_for("big", Waiting).reason
    assert "ImagePull" in sweep.wait_for("wrong", Waiting).reason
    sweep.stand_in.behave()
    assert sweep.all_events("big")[-1] == Ended()


def test_a_job_whose_pods_are_not_allowed_fails_with_the_reason_and_is_lost(sweep: Sweep) -> None:
    sweep.stand_in.quota(0)
    sweep.submit("job", lambda: training(1))
    finished = sweep.all_events("job")[-1]
    assert isinstance(finished, Ended) and finished.failure is FailureKind.LOST
    assert "quota" in finished.error


def test_several_pods_are_told_apart_in_the_log(sweep: Sweep) -> None:
    two = order("job", ("echo learns; sleep 1", "echo collects; sleep 1"))
    sweep.watch.submit(two, sweep.log("job"))
    assert sweep.all_events("job")[-1] == Ended()
    lines = sorted(sweep.log("job").read_text().splitlines())
    assert lines == ["[collector-0] collects", "[learner-0] learns"]


def test_twenty_jobs_at_once_lose_nothing_in_a_restart(sweep: Sweep) -> None:
    names = [f"job-{number}" for number in range(20)]
    restarted = threading.Event()
    wait = lambda: restarted.wait(100 * PATIENCE)  # noqa: E731
    script = lambda: training(15, pause=0.2, before_end=wait)  # noqa: E731
    with ThreadPoolExecutor(20) as pool:
        list(pool.map(lambda name: sweep.submit(name, script), names))
        followed = [pool.submit(sweep.all_events, name, 180) for name in names]
        # An operator that is cut off while it makes pods may fail a job: not what is tested.
        for name in names:
            sweep.wait_for(name, Message, 60)
        sweep.kube.restart()
        restarted.set()
        for events in (each.result() for each in followed):
            assert numbers(events) == list(range(1, 17)) and events[-1] == Ended()


def test_a_missing_right_is_told_when_the_watch_is_made(kube: ApiServer, namespace: str) -> None:
    before = set(threading.enumerate())
    with pytest.raises(KubeForbiddenError, match="may not list dijobs"):
        SweepJobs(connect(KubeSettings(kube.kubeconfig("nobody", namespace))), KEY)
    assert set(threading.enumerate()) <= before


def test_events_wake_a_consumer_at_once_and_are_counted(sweep: Sweep) -> None:
    sweep.submit("job", lambda: training(5, pause=0.3))
    seen: list[JobEvent] = []
    for _ in itertools.count():
        seen += sweep.watch.events("job", len(seen), 20)
        if isinstance(seen[-1], Ended):
            break
    assert seen == sweep.watch.events("job", 0, 0)
