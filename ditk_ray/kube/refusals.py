"""What the API server refuses, and what keeps it from answering, in words for a person."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
)

from ditk_ray.errors import (
    KubeConflictError,
    KubeError,
    KubeExpiredError,
    KubeForbiddenError,
    KubeNotFoundError,
    KubeRefusedError,
    KubeUnknownKindError,
    KubeUnreachableError,
)
from ditk_ray.kube.resources import DIJOBS, RAY_CLUSTERS, RAY_JOBS

_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "DELETE": "delete"}
_BUSY = 429
_OPERATORS = {
    DIJOBS.plural: ("DIJobs", "DI-orchestrator", "dijobs.diengine.opendilab.org"),
    RAY_CLUSTERS.plural: ("RayClusters of ray.io/v1", "KubeRay", "rayclusters.ray.io"),
    RAY_JOBS.plural: ("RayJobs of ray.io/v1", "KubeRay", "rayjobs.ray.io"),
}
"""What a cluster does not know without an operator, which one that is, and what it brings."""

_DIJOB_ROLE = "cluster_configs/rbac.yaml"
_CLUSTER_ROLE = "cluster_configs/cluster_rbac.yaml"
_SHARED_RESOURCES = ("pods", "pods/log", "events", "configmaps")
"""What both sweeps of DIJobs and Ray clusters are about."""


@dataclass(frozen=True)
class Asked:
    """A request, as a person would put it. `name` is None for a whole collection.

    `namespace` is empty for what lives in none.
    """

    method: str
    plural: str
    namespace: str
    name: str | None = None
    part: str | None = None
    is_watch: bool = False

    @property
    def verb(self) -> str:
        """The verb by which a Role allows the request."""
        if self.method == "GET" and self.name is None:
            return "watch" if self.is_watch else "list"
        return _VERBS[self.method]

    @property
    def resource(self) -> str:
        """The resource by which a Role allows the request."""
        return f"{self.plural}/{self.part}" if self.part else self.plural

    @property
    def place(self) -> str:
        """Where that is."""
        return f"in namespace {self.namespace!r}" if self.namespace else "of the whole cluster"

    def __str__(self) -> str:
        named = f" {self.name!r}" if self.name else ""
        return f"{self.verb} {self.resource}{named} {self.place}"


def refusal(asked: Asked, status: int, body: bytes) -> KubeError:
    """Return the error for an answer whose status is not a good one."""
    said = _status_object(body)
    message = str(said.get("message") or body[:300].decode(errors="replace")).strip()
    if status == 401:
        return KubeForbiddenError(
            f"cannot {asked}: the API server does not know us (401)\n"
            "    the token or certificate is wrong or has expired; log in to the cluster again",
            status,
        )
    if status == 403 and said.get("reason") == "Forbidden" and "is forbidden: User" in message:
        return _missing_right(asked, message)
    if status == 403 and message.endswith("is forbidden:"):
        # Applying what is not there yet takes `create`, too, which the server does not name.
        return _missing_right(replace(asked, method="POST"), message)
    if status == 404:
        return _not_found(asked, said, message)
    if status == 410:
        return KubeExpiredError(f"cannot {asked}: {message}", status)
    if status == 409:
        is_there = said.get("reason") == "AlreadyExists"
        return KubeConflictError(f"cannot {asked}: {message}", status, is_there)
    if status in (400, 403, 413, 422):
        return KubeRefusedError(f"cannot {asked}: {_causes(said, message)}", status)
    if status == _BUSY or status >= 500:
        return KubeUnreachableError(
            f"cannot {asked}: the API server says {status} {message}", status
        )
    return KubeError(f"cannot {asked}: the API server says {status} {message}", status)


def unreachable(asked: Asked, host: str, error: BaseException) -> KubeUnreachableError:
    """Return the error for a request that got no answer."""
    return KubeUnreachableError(f"cannot {asked}: {host} {_why_unreachable(error)}")


def never_arrived(error: BaseException) -> bool:
    """Tell whether the request cannot have had an effect, so that it may be sent again."""
    return isinstance(error, (NewConnectionError, NameResolutionError, ConnectTimeoutError))


def _why_unreachable(error: BaseException) -> str:
    text = " ".join(str(error).split())
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        return f"has a certificate that is not trusted ({text[-120:]})"
    if isinstance(error, NameResolutionError):
        return "is no known host name"
    if isinstance(error, NewConnectionError):
        return f"cannot be reached ({text.rpartition(': ')[2]})"
    if isinstance(error, (ConnectTimeoutError, ReadTimeoutError)):
        return "does not answer in time"
    if isinstance(error, HTTPError):
        return f"broke off the connection ({text[:200]})"
    return f"cannot be reached ({type(error).__name__}: {text[:200]})"


def _status_object(body: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(body)
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _missing_right(asked: Asked, message: str) -> KubeForbiddenError:
    who = message.partition('User "')[2].partition('"')[0]
    return KubeForbiddenError(
        f"{who or 'this account'} may not {asked.verb} {asked.resource} {asked.place}\n"
        f"    see {_role_file(asked)} for the rights that are needed",
        403,
    )


def _role_file(asked: Asked) -> str:
    """Return the file with a Role that allows such a request."""
    if asked.plural == DIJOBS.plural:
        return _DIJOB_ROLE
    if asked.resource in _SHARED_RESOURCES:
        return f"{_DIJOB_ROLE} (for Ray clusters {_CLUSTER_ROLE})"
    return _CLUSTER_ROLE


def _not_found(asked: Asked, said: Mapping[str, Any], message: str) -> KubeError:
    details = said.get("details") or {}
    if details.get("kind") == "namespaces":
        return KubeNotFoundError(f"cannot {asked}: there is no such namespace", 404)
    # An object that is missing is named in the answer; a resource that is missing is not.
    if not details.get("name") and asked.plural in _OPERATORS:
        kind, operator, definition = _OPERATORS[asked.plural]
        return KubeUnknownKindError(
            f"cannot {asked}: this cluster does not know {kind}\n"
            f"    is {operator} installed? `kubectl get crd` should list {definition}",
            404,
        )
    return KubeNotFoundError(f"cannot {asked}: {message}", 404)


def _causes(said: Mapping[str, Any], message: str) -> str:
    """Return every cause on its own line, where the server lists several."""
    causes = (said.get("details") or {}).get("causes") or []
    if len(causes) < 2:
        return message
    lines = [f"    {cause.get('field', '?')}: {cause.get('message', '')}" for cause in causes]
    return "\n".join(["it is not valid:", *lines])
