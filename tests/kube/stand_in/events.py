"""Events as Kubernetes' components record them."""

from __future__ import annotations

import datetime
import secrets
from typing import Any

from tests.kube.api_client import ApiClient, ApiError


def now() -> str:
    """Return the time as the API writes it."""
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%dT%H:%M:%SZ}"


def record(
    client: ApiClient,
    about: dict[str, Any],
    component: str,
    reason: str,
    message: str,
    kind: str = "Normal",
) -> None:
    """Record an event about a pod or a DIJob; one that is refused is lost, as events are."""
    metadata = about["metadata"]
    reference: dict[str, Any] = {key: about[key] for key in ("apiVersion", "kind") if key in about}
    # Items of lists do not say what they are.
    reference = reference or {"apiVersion": "v1", "kind": "Pod"}
    at = now()
    event = {
        "metadata": {"name": f"{metadata['name']}.{secrets.token_hex(8)}"},
        "involvedObject": {
            **reference,
            "namespace": metadata["namespace"],
            "name": metadata["name"],
            "uid": metadata["uid"],
        },
        "type": kind,
        "reason": reason,
        "message": message[:1000],
        "source": {"component": component},
        "reportingComponent": component,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }
    try:
        client.create(f"api/v1/namespaces/{metadata['namespace']}/events", event)
    except ApiError:
        return
