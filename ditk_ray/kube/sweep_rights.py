"""What a sweep of DIJobs has to be allowed in its namespace."""

from __future__ import annotations

from ditk_ray.kube.access import Right
from ditk_ray.kube.resources import CONFIG_MAPS, DIJOBS, EVENTS, PODS

_GROUP = DIJOBS.api_version.partition("/")[0]
_VERBS = {
    (_GROUP, DIJOBS.plural): ("create", "get", "list", "watch", "delete"),
    ("", PODS.plural): ("list", "watch"),
    ("", f"{PODS.plural}/log"): ("get",),
    ("", EVENTS.plural): ("list",),
    ("", CONFIG_MAPS.plural): ("create", "get", "patch", "delete"),
}

SWEEP_RIGHTS = tuple(Right(*place, verb) for place, verbs in _VERBS.items() for verb in verbs)
"""Of those in `cluster_configs/rbac.yaml`, all that a sweep itself makes use of."""
