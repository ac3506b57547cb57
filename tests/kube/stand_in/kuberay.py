"""A stand-in for KubeRay's operator, and for the scheduler and the node below its pods."""

from __future__ import annotations

import contextlib
import itertools
import secrets
import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import urllib3

from tests.kube.api_client import ApiError
from tests.kube.api_server import ApiServer
from tests.kube.kuberay_crds import RAY
from tests.kube.stand_in import pod_status
from tests.kube.stand_in import ray_objects as objects
from tests.kube.stand_in.collection import Collection
from tests.kube.stand_in.events import now, record
from tests.kube.stand_in.forward_server import ForwardServer
from tests.kube.stand_in.misbehaviour import fault
from tests.processes import wait_until

Object = dict[str, Any]
_GENTLE = {"gracePeriodSeconds": 0}
_QUIET_SECONDS = 0.2


class StandInKubeRay:
    """Plays KubeRay for the RayClusters and RayJobs of one namespace, as far as tests need it.

    Pods are objects only: they are scheduled and ready at once, unless it is told otherwise.
    Their ports lead, through the API server and the kubelet that this plays too, to the real
    ports of this machine that `ports` gives for them. Deployments get their pod, and Services
    their Endpoints. All it knows is in the API server.
    """

    def __init__(
        self,
        kube: ApiServer,
        namespace: str,
        ports: Mapping[int, int] | None = None,
        token: str | None = None,
    ) -> None:
        self._client = kube.client("stand-in-kuberay", ("system:masters",))
        self._core = f"api/v1/namespaces/{namespace}"
        self._ray = f"{RAY}/namespaces/{namespace}"
        self._deployments = f"apis/apps/v1/namespaces/{namespace}/deployments"
        self.ports = dict(ports or {})
        self.token = token or secrets.token_hex(16)
        self._addresses = itertools.count(1)
        self.unschedulable: dict[str, str] = {}
        self.unpullable: dict[str, str] = {}
        self.crashing: dict[str, str] = {}
        """What goes wrong, by patterns of pod names; see `misbehave`."""
        self._is_silent = False
        self._stopped = False
        self._changed = threading.Event()
        self._node = f"stand-in-ray-{secrets.token_hex(4)}"
        self.kubelet = ForwardServer(kube.authority.server(self._node), self._find_port)
        self._add_node()
        paths = [f"{self._ray}/rayclusters", f"{self._ray}/rayjobs", self._deployments]
        paths += [f"{self._core}/pods", f"{self._core}/services"]
        self._collections = [
            Collection(self._client, path, lambda kind, found: self._changed.set())
            for path in paths
        ]
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def __enter__(self) -> StandInKubeRay:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End; the objects in the API stay as they are."""
        self._stopped = True
        self._changed.set()
        self._thread.join(20)
        for collection in self._collections:
            collection.stop()
        self.kubelet.close()
        with contextlib.suppress(ApiError):
            self._client.delete(f"api/v1/nodes/{self._node}")

    # What goes wrong.

    def be_silent(self) -> None:
        """Look at nothing any more, as an operator does that is not there."""
        self._is_silent = True

    def never_schedule(self, pods: str, why: str = "0/3 nodes: 3 Insufficient cpu.") -> None:
        """Find no node for pods whose names match."""
        self.unschedulable[pods] = why

    def fail_to_pull(self, pods: str, why: str = "manifest unknown") -> None:
        """Find no image for pods whose names match."""
        self.unpullable[pods] = why

    def crash(self, pods: str, why: str = "back-off 10s restarting failed container") -> None:
        """Have the containers of pods whose names match end again and again."""
        self.crashing[pods] = why

    def behave(self) -> None:
        """Do wrong no more; pods that suffer are made anew."""
        for faults in (self.unschedulable, self.unpullable, self.crashing):
            faults.clear()
        self._is_silent = False
        for pod in self._list(f"{self._core}/pods"):
            if not objects.is_ready(pod):
                self._delete_pod(pod)
        self._changed.set()

    def quota(self, pods: int) -> None:
        """Allow only so many pods in the namespace, by a real quota."""
        body = {"metadata": {"name": "stand-in"}, "spec": {"hard": {"pods": str(pods)}}}
        self._client.create(f"{self._core}/resourcequotas", body)
        path = f"{self._core}/resourcequotas/stand-in"
        wait_until(
            lambda: "hard" in self._client.get(path).get("status", {}), 20, "the quota to count"
        )

    def replace_head(self, cluster: str) -> str:
        """Lose the head of a cluster; return the name of the next, once it is ready."""
        (lost,) = self.pods(cluster, "head")
        self._delete_pod(lost)

        def found() -> list[Object]:
            heads = self.pods(cluster, "head")
            return [pod for pod in heads if objects.is_ready(pod) and pod["metadata"]["uid"] != uid]

        uid = lost["metadata"]["uid"]
        return str(wait_until(found, 30, "another head")[0]["metadata"]["name"])

    def end_job(
        self, name: str, job_status: str, deployment_status: str, message: str = ""
    ) -> None:
        """Have a RayJob come to its end."""
        status = {
            "jobStatus": job_status,
            "jobDeploymentStatus": deployment_status,
            "message": message,
        }
        self._client.patch(f"{self._ray}/rayjobs/{name}/status", {"status": status})

    def pods(self, cluster: str, kind: str) -> list[Object]:
        chosen = f"ray.io/cluster={cluster},ray.io/node-type={kind}"
        return list(self._client.get(f"{self._core}/pods", labelSelector=chosen)["items"])

    # What KubeRay does.

    def _work(self) -> None:
        while not self._stopped:
            self._changed.wait()
            self._changed.clear()
            if self._stopped or self._is_silent:
                continue
            try:
                self._look_at_all()
            except (ApiError, urllib3.exceptions.HTTPError):
                threading.Timer(_QUIET_SECONDS, self._changed.set).start()

    def _look_at_all(self) -> None:
        for job in self._list(f"{self._ray}/rayjobs"):
            self._reconcile_job(job)
        for cluster in self._list(f"{self._ray}/rayclusters"):
            self._reconcile_cluster(cluster)
        for deployment in self._list(self._deployments):
            self._reconcile_deployment(deployment)
        pods = self._list(f"{self._core}/pods")
        for pod in pods:
            if "deletionTimestamp" in pod["metadata"]:
                self._delete_pod(pod)  # as the kubelet confirms it
        for service in self._list(f"{self._core}/services"):
            self._reconcile_endpoints(service, pods)

    def _reconcile_cluster(self, cluster: Object) -> None:
        if "deletionTimestamp" in cluster["metadata"]:
            return
        name = cluster["metadata"]["name"]
        if not self._exists(f"{self._core}/services/{name}-head-svc"):
            self._client.create(f"{self._core}/services", objects.head_service(cluster))
        if (cluster["spec"].get("authOptions") or {}).get("mode") == "token":
            self._keep_token(cluster)
        failure = self._make_pods(cluster)
        pods = self.pods(name, "head") + self.pods(name, "worker")
        status = objects.cluster_status(cluster, pods, failure)
        if not _says(cluster.get("status", {}), status):
            body = {"status": {**status, "lastUpdateTime": now()}}
            self._client.patch(f"{self._ray}/rayclusters/{name}/status", body)

    def _keep_token(self, cluster: Object) -> None:
        if not self._exists(f"{self._core}/secrets/{cluster['metadata']['name']}"):
            secret = objects.token_secret(cluster, self.token)
            self._client.create(f"{self._core}/secrets", secret)

    def _make_pods(self, cluster: Object) -> str:
        """Make the pods that are missing; return why one could not be made."""
        name = cluster["metadata"]["name"]
        if cluster["spec"].get("suspend"):
            for pod in self.pods(name, "head") + self.pods(name, "worker"):
                self._delete_pod(pod)
            return ""
        wanted = [] if self.pods(name, "head") else [objects.head_pod(cluster)]
        there = [pod["metadata"]["labels"]["ray.io/group"] for pod in self.pods(name, "worker")]
        for group in cluster["spec"].get("workerGroupSpecs") or []:
            missing = objects.replicas(group) - there.count(group["groupName"])
            wanted += [objects.worker_pod(cluster, group) for _ in range(missing)]
        for pod in wanted:
            try:
                self._start(pod)
            except ApiError as error:
                about = {**cluster, "apiVersion": "ray.io/v1", "kind": "RayCluster"}
                record(self._client, about, "kuberay", "FailedToCreate", str(error), "Warning")
                return str(error)
        return ""

    def _reconcile_job(self, job: Object) -> None:
        status, name = job.get("status") or {}, job["metadata"]["name"]
        if status.get("jobDeploymentStatus") in ("Complete", "Failed", "ValidationFailed"):
            return
        clusters = [each for each in self._list(f"{self._ray}/rayclusters") if _is_for(each, job)]
        if not clusters:
            cluster = {
                "metadata": {
                    "name": f"{name}-{secrets.token_hex(3)[:5]}",
                    "labels": job["metadata"].get("labels") or {},
                    "ownerReferences": objects.owned(job, "RayJob"),
                },
                "spec": job["spec"]["rayClusterSpec"],
            }
            body = {"apiVersion": "ray.io/v1", "kind": "RayCluster", **cluster}
            clusters = [self._client.create(f"{self._ray}/rayclusters", body)]
        is_up = (clusters[0].get("status") or {}).get("state") == "ready"
        said = {
            "jobDeploymentStatus": "Running" if is_up else "Initializing",
            "rayClusterName": clusters[0]["metadata"]["name"],
        }
        if is_up:
            said |= {"jobStatus": "RUNNING"}
        if not _says(status, said):
            self._client.patch(f"{self._ray}/rayjobs/{name}/status", {"status": said})

    # What Kubernetes' own controllers do.

    def _reconcile_deployment(self, deployment: Object) -> None:
        uid = deployment["metadata"]["uid"]
        for pod in self._list(f"{self._core}/pods"):
            owners = pod["metadata"].get("ownerReferences") or []
            if any(owner["uid"] == uid for owner in owners):
                return
        with contextlib.suppress(ApiError):
            self._start(objects.deployed_pod(deployment))

    def _reconcile_endpoints(self, service: Object, pods: list[Object]) -> None:
        wanted = objects.endpoints(service, pods)
        path = f"{self._core}/endpoints"
        name = service["metadata"]["name"]
        known = self._get(f"{path}/{name}")
        if known is None:
            self._client.create(path, wanted)
        elif not _says({"subsets": known.get("subsets") or []}, {"subsets": wanted["subsets"]}):
            self._client.replace(f"{path}/{name}", wanted)

    def _start(self, pod: Object) -> None:
        """Make a pod with the status that it comes to."""
        name = pod["metadata"]["name"]
        why = fault(self.unschedulable, name)
        if why is None:
            pod["spec"]["nodeName"] = self._node
        made = self._client.create(f"{self._core}/pods", pod)
        if why is not None:
            status = pod_status.unschedulable(why)
        elif said := fault(self.unpullable, name):
            status = pod_status.waiting(made, "ImagePullBackOff", said)
        elif said := fault(self.crashing, name):
            status = _crash_loop(made, said)
        else:
            address = f"10.1.0.{next(self._addresses)}"
            status = {**pod_status.running(made, now()), "podIP": address}
        self._client.patch(f"{self._core}/pods/{name}/status", {"status": status})
        self._changed.set()

    def _find_port(self, pod: str, port: int) -> int | str:
        return self.ports.get(port, "connection refused")

    def _add_node(self) -> None:
        self._client.create("api/v1/nodes", {"metadata": {"name": self._node}})
        status = {
            "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet.port}},
        }
        self._client.patch(f"api/v1/nodes/{self._node}/status", {"status": status})

    def _delete_pod(self, pod: Object) -> None:
        with contextlib.suppress(ApiError):
            self._client.delete(f"{self._core}/pods/{pod['metadata']['name']}", **_GENTLE)

    def _list(self, path: str) -> list[Object]:
        return list(self._client.get(path)["items"])

    def _get(self, path: str) -> Object | None:
        try:
            return self._client.get(path)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    def _exists(self, path: str) -> bool:
        return self._get(path) is not None


def _crash_loop(pod: Object, message: str) -> Object:
    status = pod_status.waiting(pod, "CrashLoopBackOff", message)
    end = {"exitCode": 1, "reason": "Error", "startedAt": now(), "finishedAt": now()}
    for each in status["containerStatuses"]:
        each |= {"restartCount": 3, "lastState": {"terminated": end}}
    return {**status, "phase": "Running"}


def _is_for(cluster: Object, job: Object) -> bool:
    owners = cluster["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == job["metadata"]["uid"] for owner in owners)


def _says(known: Any, wanted: Any) -> bool:
    """Say whether a status has what it should, whatever its times are."""
    if isinstance(wanted, dict):
        return isinstance(known, dict) and all(
            key == "lastTransitionTime" or _says(known.get(key, ""), value)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(known, list)
            and len(known) == len(wanted)
            and all(_says(*pair) for pair in zip(known, wanted, strict=True))
        )
    return bool(known == wanted) or (known == "" and wanted in ("", 0))
