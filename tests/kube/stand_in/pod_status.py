"""The statuses that a kubelet writes."""

from __future__ import annotations

from typing import Any

from tests.kube.stand_in.events import now

Object = dict[str, Any]


def pod_conditions(ready: bool, reason: str | None = None) -> list[Object]:
    """Return the conditions of a pod that has a node."""
    at = now()
    states = {"Initialized": True, "Ready": ready, "ContainersReady": ready, "PodScheduled": True}
    return [
        {
            "type": kind,
            "status": str(state),
            "lastTransitionTime": at,
            **({"reason": reason} if reason and not state else {}),
        }
        for kind, state in states.items()
    ]


def unschedulable(message: str) -> Object:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    at = {"lastTransitionTime": now()}
    return {"phase": "Pending", "conditions": [{**condition, **at, "message": message}]}


def waiting(pod: Object, reason: str, message: str | None = None) -> Object:
    state = {"waiting": {"reason": reason, **({"message": message} if message else {})}}
    containers = [_container(spec, state) for spec in pod["spec"]["containers"]]
    return {
        "phase": "Pending",
        "hostIP": "127.0.0.1",
        "startTime": now(),
        "conditions": pod_conditions(False, "ContainersNotReady"),
        "containerStatuses": containers,
    }


def running(pod: Object, started: str) -> Object:
    state = {"running": {"startedAt": started}}
    containers = [_container(spec, state, ready=True) for spec in pod["spec"]["containers"]]
    return {
        "phase": "Running",
        "podIP": "127.0.0.1",
        "conditions": pod_conditions(True),
        "containerStatuses": containers,
    }


def ended(pod: Object, started: str, codes: list[int], reasons: list[str | None]) -> Object:
    """Return the status of a pod all of whose containers have ended."""
    containers = []
    for spec, code, reason in zip(pod["spec"]["containers"], codes, reasons, strict=True):
        said = reason or ("Error" if code else "Completed")
        state = {"exitCode": code, "reason": said, "startedAt": started, "finishedAt": now()}
        containers.append(_container(spec, {"terminated": state}))
    return {
        "phase": "Failed" if any(codes) else "Succeeded",
        "conditions": pod_conditions(False, "PodCompleted"),
        "containerStatuses": containers,
    }


def _container(spec: Object, state: Object, ready: bool = False) -> Object:
    return {
        "name": spec["name"],
        "image": spec.get("image", ""),
        "imageID": "" if "waiting" in state else f"stand-in://{spec.get('image', '')}",
        "ready": ready,
        "started": ready,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
