"""What an API server serves, and what it lets this account do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ditk_ray.errors import KubeForbiddenError, KubeNotFoundError
from ditk_ray.kube.connection import Kube
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.refusals import Asked
from ditk_ray.kube.resources import Resource
from ditk_ray.kube.wire import Call

_REVIEWS = "selfsubjectaccessreviews"
_REVIEW_API = "authorization.k8s.io/v1"


@dataclass(frozen=True, order=True)
class Right:
    """What a Role allows: a verb on a resource (`pods/portforward`) of a group."""

    group: str
    resource: str
    verb: str


def server_version(kube: Kube) -> str:
    """Return which Kubernetes answers; raises a KubeError if none does."""
    answer = kube.wire.ask(Call(Asked("GET", "version", "", "version"), "/version", {}))
    return str(answer.get("gitVersion", "of an unknown version"))


def served_resources(kube: Kube, api_version: str) -> set[str]:
    """Return the resources of a version of an API, by their plurals; none if it is not served."""
    asked = Asked("GET", "apis", "", api_version)
    try:
        answer = kube.wire.ask(Call(asked, f"/apis/{api_version}", {}))
    except KubeNotFoundError:
        return set()
    return {str(each["name"]) for each in answer.get("resources") or []}


def is_allowed(kube: Kube, right: Right) -> bool:
    """Tell whether this account has a right in the namespace."""
    resource, _, part = right.resource.partition("/")
    attributes = {
        "namespace": kube.namespace,
        "group": right.group,
        "resource": resource,
        "subresource": part,
        "verb": right.verb,
    }
    body = {
        "apiVersion": _REVIEW_API,
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    call = Call(Asked("POST", _REVIEWS, ""), f"/apis/{_REVIEW_API}/{_REVIEWS}", {}, body)
    return bool(kube.wire.ask(call).get("status", {}).get("allowed"))


def missing_rights(kube: Kube, rights: Iterable[Right]) -> list[Right]:
    """Return those of the rights that this account lacks; none if it may not even ask."""
    try:
        return [right for right in rights if not is_allowed(kube, right)]
    except KubeForbiddenError as error:
        if error.status == 403:
            return []
        raise


def list_everywhere(kube: Kube, resource: Resource, labels: str = "") -> list[Manifest]:
    """Return the objects of a kind of all namespaces, or of a kind that lives in none.

    At most 500: this is for a look at what there is.
    """
    root = "apis" if "/" in resource.api_version else "api"
    query = {"limit": "500"} | ({"labelSelector": labels} if labels else {})
    path = f"/{root}/{resource.api_version}/{resource.plural}"
    answer = kube.wire.ask(Call(Asked("GET", resource.plural, ""), path, query))
    return list(answer.get("items") or [])
