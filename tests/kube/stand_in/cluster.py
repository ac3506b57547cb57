"""The stand-in as tests use it: an operator, nodes, pods, and what goes wrong with them."""

from __future__ import annotations

import contextlib
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.kube.api_client import DIJOBS, ApiError
from tests.kube.api_server import ApiServer
from tests.kube.stand_in.collection import Collection
from tests.kube.stand_in.containers import Simulated
from tests.kube.stand_in.misbehaviour import Misbehaviour
from tests.kube.stand_in.node import StandInNode
from tests.kube.stand_in.operator import OnPhase, StandInOperator
from tests.kube.stand_in.pod_life import Fate, PodLife, Surroundings
from tests.kube.stand_in.pod_log import PodLog
from tests.lifeline import Lifeline
from tests.processes import wait_until

Object = dict[str, Any]


class StandInCluster:
    """Plays DI-orchestrator's operator, the scheduler and the kubelets of one namespace.

    Containers are real processes, unless `simulate` has a script for their pod. Everything
    ends at `close`, or with the process that made it.
    """

    def __init__(
        self,
        kube: ApiServer,
        namespace: str,
        folder: Path,
        simulate: Callable[[Object], Simulated | None] = lambda pod: None,
        on_phase: OnPhase = lambda job, phase: None,
    ) -> None:
        self._client = kube.client("stand-in", ("system:masters",))
        self._authority = kube.authority
        self._namespace = namespace
        self._folder = folder
        self._on_phase = on_phase
        self._misbehaviour = Misbehaviour()
        self._lifeline = Lifeline()
        self._lock = threading.Lock()
        self._lives: dict[str, PodLife] = {}
        self._nodes: list[StandInNode] = []
        self._around = Surroundings(
            client=self._client,
            folder=folder,
            lifeline=self._lifeline,
            misbehaviour=self._misbehaviour,
            choose_node=self._choose_node,
            simulate=simulate,
        )
        self.add_node()
        self._pods = Collection(self._client, f"{self._core}/pods", self._pod_changed)
        self._operator: StandInOperator | None = None
        self.come_back()

    def __enter__(self) -> StandInCluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes and threads; the objects in the API stay as they are."""
        self.crash()
        self._pods.stop()
        lives = self._all_lives()
        for life in lives:
            life.abandon()
        for life in lives:
            life.join()
        for node in self._nodes:
            node.remove()
        self._lifeline.close()

    # What is there.

    def job(self, name: str) -> Object:
        return self._client.get(f"{DIJOBS}/namespaces/{self._namespace}/dijobs/{name}")

    def phase(self, name: str) -> str:
        """Return a job's phase; empty while it has none."""
        return str(self.job(name).get("status", {}).get("phase", ""))

    def wait_for_phase(self, name: str, phase: str, seconds: float = 20) -> Object:
        """Wait until a job is in a phase, and return it."""
        wait_until(lambda: self.phase(name) == phase, seconds, f"{name} to be {phase}")
        return self.job(name)

    def pods(self, job: str) -> list[Object]:
        chosen = {"labelSelector": f"diengine/job={job}"}
        return list(self._client.get(f"{self._core}/pods", **chosen)["items"])

    def running_pods(self) -> list[str]:
        """Return the names of the pods whose containers run."""
        return sorted(life.pod["metadata"]["name"] for life in self._all_lives() if life.runs)

    def events(self, name: str) -> list[Object]:
        """Return the events about a pod or a job."""
        chosen = {"fieldSelector": f"involvedObject.name={name}"}
        return list(self._client.get(f"{self._core}/events", **chosen)["items"])

    def host_path(self, path: str) -> Path:
        """Return where a host path of the pods is on this machine."""
        real = Path(path)
        return real if real.exists() else self._folder / "host" / real.relative_to("/")

    # What goes wrong.

    def behave(self) -> None:
        """Do wrong no more; what waits for it goes on."""
        self._misbehaviour.clear()
        self.lift_quota()

    def never_schedule(
        self, jobs: str = "*", why: str = "0/1 nodes are available: 1 Insufficient cpu."
    ) -> None:
        """Find no node for the pods of jobs whose names match."""
        self._misbehaviour.unschedulable[jobs] = why

    def fail_to_pull(self, jobs: str = "*", why: str = "manifest unknown") -> None:
        """Find no image for the pods of jobs whose names match."""
        self._misbehaviour.unpullable[jobs] = why

    def reject(self, jobs: str = "*", reason: str = "UnexpectedAdmissionError") -> None:
        """Refuse pods on their node; their job hangs if the operator overlooks the reason."""
        self._misbehaviour.rejected[jobs] = reason

    def be_slow(self, seconds: float) -> None:
        """Take this long to schedule a pod, to pull its image and to start it."""
        self._misbehaviour.slowness = seconds

    def leave_last_pod(self) -> None:
        """Make no pod again for a job that has none left: it hangs where it is."""
        self._misbehaviour.remakes_last_pod = False

    def oom_kill(self, pod: str) -> None:
        """Kill a pod as the kernel does when its memory is at its limit."""
        self._running(pod).suffer(Fate(container_reason="OOMKilled"))

    def evict(self, pod: str, why: str = "The node was low on resource: memory.") -> None:
        """End a pod because its node wants its resources back."""
        status = {"phase": "Failed", "reason": "Evicted", "message": why}
        self._running(pod).suffer(Fate(pod_status=status))

    def kill(self, pod: str) -> None:
        """Kill a pod's containers: exit code 137."""
        self._running(pod).suffer(Fate())

    def lose_node(self, deletes_pods: bool = False) -> None:
        """Lose the node and start another.

        Its pods stop, and their logs are out of reach. They are of phase Unknown, or, as newer
        clusters do it, deleted without anybody who would confirm that.
        """
        with self._lock:
            node = next(node for node in self._nodes if node.alive)
            lost = [life for life in self._lives.values() if life.node is node]
        node.lose()
        for life in lost:
            life.abandon()
            life.join()
            self._lose_pod(life.pod, deletes_pods)
        self.add_node()

    def remove_lost_nodes(self) -> None:
        """Take lost nodes out of the cluster; their pods, whose end nobody confirms, go too."""
        with self._lock:
            lost = [node for node in self._nodes if not node.alive]
            self._nodes = [node for node in self._nodes if node.alive]
        for node in lost:
            chosen = {"fieldSelector": f"spec.nodeName={node.name}"}
            for pod in self._client.get(f"{self._core}/pods", **chosen)["items"]:
                with contextlib.suppress(ApiError):
                    path = f"{self._core}/pods/{pod['metadata']['name']}"
                    self._client.delete(path, gracePeriodSeconds=0)
            node.remove()

    def cut_logs(self) -> None:
        """Break all log streams; whoever reads may ask again."""
        for node in self._nodes:
            if node.alive:
                node.logs.cut()

    def quota(self, pods: int) -> None:
        """Allow only so many pods in the namespace, by a real quota."""
        hard = {"pods": str(pods)}
        body = {"metadata": {"name": "stand-in"}, "spec": {"hard": hard}}
        self._client.create(f"{self._core}/resourcequotas", body)
        path = f"{self._core}/resourcequotas/stand-in"
        wait_until(
            lambda: "hard" in self._client.get(path).get("status", {}), 20, "the quota to count"
        )

    def lift_quota(self) -> None:
        with contextlib.suppress(ApiError):
            self._client.delete(f"{self._core}/resourcequotas/stand-in")

    def crash(self) -> None:
        """Stop the operator; pods go on."""
        if self._operator is not None:
            self._operator.stop()
            self._operator = None

    def come_back(self) -> None:
        """Start the operator again, which lists what there is."""
        if self._operator is None:
            self._operator = StandInOperator(
                self._client,
                self._namespace,
                lambda: self._misbehaviour.remakes_last_pod,
                self._on_phase,
            )

    def add_node(self) -> None:
        name = f"stand-in-{secrets.token_hex(4)}"
        certificate = self._authority.server(name)
        self._nodes.append(StandInNode(self._client, name, certificate, self._find_log))

    @property
    def _core(self) -> str:
        return f"api/v1/namespaces/{self._namespace}"

    def _pod_changed(self, kind: str, pod: Object) -> None:
        uid = pod["metadata"]["uid"]
        with self._lock:
            life = self._lives.get(uid)
            if kind == "DELETED":
                self._lives.pop(uid, None)
            elif life is None and _untouched(pod):
                self._lives[uid] = PodLife(pod, self._around)
        if life is None:
            return
        if kind == "DELETED":
            life.gone()
        elif "deletionTimestamp" in pod["metadata"]:
            life.end_gently(float(pod["metadata"].get("deletionGracePeriodSeconds", 30)))

    def _lose_pod(self, pod: Object, deletes: bool) -> None:
        path = f"{self._core}/pods/{pod['metadata']['name']}"
        status: Object = {"reason": "NodeLost", "message": "the node does not answer"}
        if not deletes:
            status["phase"] = "Unknown"
        with contextlib.suppress(ApiError):
            self._client.patch(
                f"{path}/status", {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
            )
            if deletes:
                self._client.delete(path)

    def _choose_node(self) -> StandInNode | None:
        return next((node for node in self._nodes if node.alive), None)

    def _find_log(self, pod: str, container: str) -> PodLog | str:
        for life in self._all_lives():
            if life.pod["metadata"]["name"] == pod and container in life.logs:
                return life.logs[container]
        return f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating'

    def _running(self, pod: str) -> PodLife:
        def find() -> PodLife | None:
            named = [life for life in self._all_lives() if life.pod["metadata"]["name"] == pod]
            return next((life for life in named if life.started), None)

        found: PodLife = wait_until(find, 10, f"{pod} to run")
        return found

    def _all_lives(self) -> list[PodLife]:
        with self._lock:
            return list(self._lives.values())


def _untouched(pod: Object) -> bool:
    """Say whether a pod is new: one that another stand-in began is not taken up."""
    return "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]
