"""The objects of one kind in one namespace: kubectl's verbs, on plain dicts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ditk_ray.kube.pod_stream import PROTOCOL, PodStream
from ditk_ray.kube.refusals import Asked
from ditk_ray.kube.resources import Resource
from ditk_ray.kube.streams import LineStream
from ditk_ray.kube.wire import APPLY_PATCH, MERGE_PATCH, Call, Wire

Manifest = dict[str, Any]
"""An object as the API server writes it in JSON."""

FIELD_MANAGER = "ditk-ray"
"""Under which name the API server keeps which fields are ours."""

_PAGE = "500"


@dataclass(frozen=True)
class Listed:
    """All objects of a collection, and the version of it to watch from."""

    items: list[Manifest]
    version: str


class Objects:
    """Creates, reads, changes and deletes objects. For any number of threads.

    Every method raises a KubeError, and tries again by itself what may pass.
    `patience` overrides for how long, in seconds.
    """

    def __init__(self, wire: Wire, resource: Resource, namespace: str) -> None:
        self.resource = resource
        self.namespace = namespace
        self._wire = wire

    def create(
        self,
        manifest: Mapping[str, Any],
        *,
        is_repeatable: bool = False,
        patience: float | None = None,
    ) -> Manifest:
        """Make an object and return it as the server has it.

        With `is_repeatable` it is sent again when the connection broke before the answer.
        KubeConflictError can then mean that it is one's own.
        """
        call = self._call("POST", body=manifest)
        return self._wire.ask(replace(call, is_repeatable=is_repeatable), patience)

    def check(self, manifest: Mapping[str, Any]) -> Manifest:
        """Have an object checked as if it were made, and return what would be stored."""
        call = self._call("POST", query={"dryRun": "All"}, body=manifest)
        return self._wire.ask(replace(call, is_repeatable=True))

    def get(self, name: str, patience: float | None = None) -> Manifest:
        """Return one object."""
        return self._wire.ask(self._call("GET", name), patience)

    def list(
        self, labels: str = "", fields: str = "", patience: float | None = None
    ) -> list[Manifest]:
        """Return the objects that the selectors choose."""
        return self.snapshot(labels, fields, patience).items

    def snapshot(self, labels: str = "", fields: str = "", patience: float | None = None) -> Listed:
        """Return the objects that the selectors choose, and their version."""
        items: list[Manifest] = []
        version = ""
        for page in self._pages(_selectors(labels, fields), patience):
            version = str(page["metadata"].get("resourceVersion", ""))
            # In lists the server leaves these out of the items.
            known = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
            items += [known | item for item in page.get("items") or []]
        return Listed(items, version)

    def patch(
        self, name: str, changes: Mapping[str, Any], patience: float | None = None
    ) -> Manifest:
        """Merge `changes` into an object (None removes a key) and return the whole."""
        call = self._call("PATCH", name, body=changes)
        return self._wire.ask(replace(call, content_type=MERGE_PATCH), patience)

    def apply(self, manifest: Mapping[str, Any], *, is_check: bool = False) -> Manifest:
        """Have an object be as the manifest says, whether it is there or not; return the whole.

        Fields that the manifest had before and has no more are removed, those of others stay.
        With `is_check` nothing is stored: the answer is what would be.
        """
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        if is_check:
            query["dryRun"] = "All"
        call = self._call("PATCH", manifest["metadata"]["name"], query=query, body=manifest)
        return self._wire.ask(replace(call, content_type=APPLY_PATCH))

    def delete(self, name: str, uid: str | None = None, patience: float | None = None) -> None:
        """Delete an object; what it owns follows in the background.

        With `uid` only that very object is deleted; another of its name raises
        KubeConflictError.
        """
        options: Manifest = {"propagationPolicy": "Background"}
        if uid:
            options["preconditions"] = {"uid": uid}
        self._wire.ask(self._call("DELETE", name, body=options), patience)

    def watch(
        self, version: str, labels: str, seconds: int, silence: float, fields: str = ""
    ) -> LineStream:
        """Open a watch from a version on, which the server ends after `seconds`."""
        query = _selectors(labels, fields) | {
            "watch": "true",
            "resourceVersion": version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(seconds),
        }
        call = self._call("GET", query=query)
        call = replace(call, asked=replace(call.asked, is_watch=True))
        return self._wire.open(call, silence, patience=0)

    def log(self, name: str, query: Mapping[str, str], silence: float) -> LineStream:
        """Open the log of a pod, with the API's own parameters (`follow`, `sinceTime` ...)."""
        return self._wire.open(self._call("GET", name, "log", query=query), silence, patience=0)

    def forward(self, name: str, port: int) -> PodStream:
        """Open a connection to a port of a pod."""
        call = self._call("GET", name, "portforward", query={"ports": str(port)})
        return PodStream(self._wire.upgrade(call, PROTOCOL))

    def _pages(self, query: Mapping[str, str], patience: float | None) -> Iterator[Manifest]:
        token = ""
        while True:
            paged = {**query, "limit": _PAGE} | ({"continue": token} if token else {})
            page = self._wire.ask(self._call("GET", query=paged), patience)
            yield page
            token = page["metadata"].get("continue", "")
            if not token:
                return

    def _call(
        self,
        method: str,
        name: str | None = None,
        part: str | None = None,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> Call:
        asked = Asked(method, self.resource.plural, self.namespace, name, part)
        path = self.resource.path(self.namespace, name, part)
        return Call(asked, path, query or {}, body)


def _selectors(labels: str, fields: str) -> dict[str, str]:
    given = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in given.items() if value}
