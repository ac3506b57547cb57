"""Objects of Kubernetes as plain dicts: their kinds, kubectl's verbs on them, and their ages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ditk_ray.kube.http_client import JSON, Call, HttpClient, LineStream

Manifest = dict[str, Any]
"""An object as the API server writes it in JSON."""

MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "ditk-ray"
"""The label, and its value, on all that we make; the latter also says which fields are ours."""

CLUSTER = "ditk-ray/cluster"
"""On all that makes up a Ray cluster of ours: the cluster's name."""

_PAGE = "500"
_MERGE_PATCH = "application/merge-patch+json"
_APPLY_PATCH = "application/apply-patch+yaml"  # of which JSON is a part
RAY_API = "ray.io/v1"


@dataclass(frozen=True)
class Resource:
    """One kind of object."""

    plural: str
    kind: str
    api_version: str


DIJOBS = Resource("dijobs", "DIJob", "diengine.opendilab.org/v2alpha1")
PODS = Resource("pods", "Pod", "v1")
EVENTS = Resource("events", "Event", "v1")
CONFIG_MAPS = Resource("configmaps", "ConfigMap", "v1")
RAY_CLUSTERS = Resource("rayclusters", "RayCluster", RAY_API)
RAY_JOBS = Resource("rayjobs", "RayJob", RAY_API)
SERVICES = Resource("services", "Service", "v1")
ENDPOINTS = Resource("endpoints", "Endpoints", "v1")
VOLUME_CLAIMS = Resource("persistentvolumeclaims", "PersistentVolumeClaim", "v1")
DEPLOYMENTS = Resource("deployments", "Deployment", "apps/v1")
ROLE_BINDINGS = Resource("rolebindings", "RoleBinding", "rbac.authorization.k8s.io/v1")
TOKENS = Resource(kind="Secret", api_version="v1", plural="secrets")


@dataclass(frozen=True)
class Piece:
    """An object that was found, and of which kind it is."""

    resource: Resource
    manifest: Manifest

    @property
    def name(self) -> str:
        return str(self.manifest["metadata"]["name"])

    @property
    def uid(self) -> str:
        """What no other object has, not even one of the same name."""
        return str(self.manifest["metadata"]["uid"])

    @property
    def title(self) -> str:
        return f"{self.resource.kind.lower()}/{self.name}"


class Objects:
    """Creates, reads, changes and deletes objects. For any number of threads.

    `namespace` is empty for kinds that live in none, and to list those of all namespaces.
    Every method raises a KubeError, after retrying what may pass.
    `patience` overrides for how long, in seconds.
    """

    def __init__(self, http: HttpClient, resource: Resource, namespace: str) -> None:
        self.resource = resource
        self.namespace = namespace
        self._http = http

    def create(
        self,
        manifest: Mapping[str, Any],
        *,
        is_repeatable: bool = False,
        patience: float | None = None,
    ) -> Manifest:
        """Make an object and return it as the server has it.

        With `is_repeatable` it is sent again when the connection broke before the answer.
        KubeConflictError can then mean that the object is the one just made.
        """
        call = self.call("POST", body=manifest, is_repeatable=is_repeatable)
        return self._http.ask(call, patience)

    def check(self, manifest: Mapping[str, Any]) -> Manifest:
        """Have an object checked as if it were made, and return what would be stored."""
        return self._http.ask(self.call("POST", query={"dryRun": "All"}, body=manifest))

    def get(self, name: str, patience: float | None = None) -> Manifest:
        return self._http.ask(self.call("GET", name), patience)

    def snapshot(
        self, labels: str = "", fields: str = "", patience: float | None = None
    ) -> tuple[list[Manifest], str]:
        """Return the objects that the selectors choose, and the version to watch from."""
        # In lists the server leaves these out of the items.
        known = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        items: list[Manifest] = []
        given = {"labelSelector": labels, "fieldSelector": fields, "limit": _PAGE}
        query = {key: value for key, value in given.items() if value}
        while True:
            page = self._http.ask(self.call("GET", query=query), patience)
            items += [known | item for item in page.get("items") or []]
            about = page["metadata"]
            if not about.get("continue"):
                return items, str(about.get("resourceVersion", ""))
            query["continue"] = about["continue"]

    def list(
        self, labels: str = "", fields: str = "", patience: float | None = None
    ) -> list[Manifest]:
        return self.snapshot(labels, fields, patience)[0]

    def patch(
        self, name: str, changes: Mapping[str, Any], patience: float | None = None
    ) -> Manifest:
        """Merge `changes` into an object (None removes a key) and return the whole."""
        call = self.call("PATCH", name, body=changes, content_type=_MERGE_PATCH)
        return self._http.ask(call, patience)

    def apply(self, manifest: Mapping[str, Any], *, is_check: bool = False) -> Manifest:
        """Create or change an object as the manifest says; return the whole.

        Fields that the manifest had before and has no more are removed, those of others stay.
        With `is_check` nothing is stored: the answer is what would be.
        """
        query = {"fieldManager": MANAGER, "force": "true"}
        if is_check:
            query["dryRun"] = "All"
        name = manifest["metadata"]["name"]
        call = self.call("PATCH", name, query=query, body=manifest, content_type=_APPLY_PATCH)
        return self._http.ask(call)

    def delete(self, name: str, uid: str | None = None, patience: float | None = None) -> None:
        """Delete an object; what it owns follows in the background.

        With `uid` only that very object is deleted; another of its name raises
        KubeConflictError.
        """
        options: Manifest = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        self._http.ask(self.call("DELETE", name, body=options), patience)

    def watch(self, version: str, labels: str, seconds: int, silence: float) -> LineStream:
        """Open a watch from a version on, which the server ends after `seconds`."""
        query = {
            "labelSelector": labels,
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        return self._http.open(self.call("GET", query=query), silence, patience=0)

    def log(self, name: str, query: Mapping[str, str], silence: float) -> LineStream:
        """Open the log of a pod, with the API's own parameters (`follow`, `sinceTime` ...)."""
        return self._http.open(self.call("GET", name, "log", query=query), silence, patience=0)

    def call(
        self,
        method: str,
        name: str | None = None,
        part: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str = JSON,
        is_repeatable: bool = True,
    ) -> Call:
        """Return a request about the collection, one object, or a part of it (`log`)."""
        root = "apis" if "/" in self.resource.api_version else "api"
        place = ("namespaces", self.namespace) if self.namespace else ()
        pieces = (root, self.resource.api_version, *place, self.resource.plural, name, part)
        path = "/" + "/".join(piece for piece in pieces if piece)
        about = (self.resource.plural, self.namespace, name, part)
        return Call(method, path, *about, query or {}, body, content_type, is_repeatable)


def kube_quantity(amount: int) -> str:
    """Write a number of bytes as Kubernetes does: `16Gi`, `512Mi`, or the number."""
    for size, unit in ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"), (2**10, "Ki")):
        if amount % size == 0 and amount >= size:
            return f"{amount // size}{unit}"
    return str(amount)


def moment(stamp: Any) -> float:
    """Return a stamp as a number, by which times can be compared; 0 for one that is invalid.

    Some stamps have fractions of a second and some have not: as texts they cannot be compared.
    """
    try:
        return datetime.fromisoformat(str(stamp)).timestamp()
    except ValueError:
        return 0.0


def seconds_since(stamp: Any, now: datetime) -> float:
    """Return how long ago a stamp is; 0 for a future or invalid one."""
    then = moment(stamp)
    return max(0.0, now.timestamp() - then) if then else 0.0


def age_of(manifest: Manifest, now: datetime) -> float:
    return seconds_since(manifest["metadata"].get("creationTimestamp"), now)


def show_age(seconds: float) -> str:
    """Write an age in one unit, as kubectl mostly does: `45s`, `110m`, `26h`, `9d`."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * size:
            return f"{int(seconds / size)}{unit}"
    return f"{max(0, int(seconds))}s"
