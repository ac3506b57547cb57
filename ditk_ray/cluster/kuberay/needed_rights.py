"""The rights that commands about Ray clusters need: those of cluster_configs/cluster_rbac.yaml."""

from __future__ import annotations

from ditk_ray.kube.access import Right

_RBAC = "rbac.authorization.k8s.io"

_ALL = ("get", "list", "create", "patch", "delete")  # server-side apply is `patch` and `create`

_LOOKING = {
    ("ray.io", "rayclusters"): ("list",),
    ("ray.io", "rayjobs"): ("list",),
    ("", "pods"): ("list",),
    # By websocket it is `get`, and `create` from Kubernetes 1.35 on.
    ("", "pods/portforward"): ("get", "create"),
    ("", "services"): ("list",),
    ("", "endpoints"): ("list",),
    ("", "events"): ("list",),
    ("", "secrets"): ("get",),
}
_MAKING = {
    ("ray.io", "rayclusters"): _ALL,
    ("ray.io", "rayjobs"): _ALL,
    ("", "services"): _ALL,
    ("", "serviceaccounts"): _ALL,
    ("", "persistentvolumeclaims"): _ALL,
    ("apps", "deployments"): _ALL,
    ("networking.k8s.io", "networkpolicies"): _ALL,
    (_RBAC, "roles"): _ALL,
    (_RBAC, "rolebindings"): _ALL,
    # Nobody may hand out rights that he does not hold: these are the head's own.
    ("", "pods"): ("get", "list", "watch", "patch"),
    ("", "pods/log"): ("get",),
    ("", "configmaps"): ("create", "get", "patch", "delete"),
    ("diengine.opendilab.org", "dijobs"): ("create", "get", "list", "watch", "delete"),
    ("", "events"): ("list",),
}


def looking_rights() -> list[Right]:
    """Return what `list`, `status`, `discover` and `forward` need."""
    return _rights(_LOOKING)


def making_rights() -> list[Right]:
    """Return what `launch`, `run` and `delete` need."""
    return _rights(_MAKING)


def _rights(table: dict[tuple[str, str], tuple[str, ...]]) -> list[Right]:
    return [Right(*place, verb) for place, verbs in table.items() for verb in verbs]
