"""The API server that the other tests stand on."""

from __future__ import annotations

from typing import Any

import pytest

from tests.kube.api_client import DIJOBS, ApiError
from tests.kube.api_server import ApiServer
from tests.processes import wait_until

pytestmark = pytest.mark.kube


def job(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": {"name": name},
        "spec": {
            "projectPath": "/somewhere",
            "backoffLimit": None,
            "tasks": [
                {
                    "type": "none",
                    "name": "serial",
                    "template": {"spec": {"containers": [{"name": "main", "image": "none"}]}},
                }
            ],
        },
    }


def test_dijobs_are_known_with_their_defaults_and_without_what_the_crd_does_not_know(
    kube: ApiServer, namespace: str
) -> None:
    made = kube.admin.create(f"{DIJOBS}/namespaces/{namespace}/dijobs", job("first"))
    spec = made["spec"]
    assert "projectPath" not in spec
    assert (spec["backoffLimit"], spec["cleanPodPolicy"]) == (3, "Running")
    assert (spec["priority"], spec["preemptible"], spec["tasks"][0]["replicas"]) == (
        "normal",
        False,
        1,
    )
    assert "status" not in made


def test_a_wrong_enum_is_refused(kube: ApiServer, namespace: str) -> None:
    wrong = job("wrong")
    wrong["spec"]["cleanPodPolicy"] = "Some"
    with pytest.raises(ApiError, match="422 Invalid"):
        kube.admin.create(f"{DIJOBS}/namespaces/{namespace}/dijobs", wrong)


def test_a_user_may_do_what_its_role_says_and_is_counted(kube: ApiServer, namespace: str) -> None:
    user = kube.client("alice")
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    with pytest.raises(ApiError, match="403 Forbidden"):
        user.get(path)
    rule = {"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": ["list"]}
    kube.grant(namespace, "alice", [rule])
    wait_until(lambda: _may(user, path), 10, "the role to count")
    with pytest.raises(ApiError, match="403 Forbidden"):
        user.create(path, job("first"))
    counts = kube.request_counts("alice")
    assert counts["list", "dijobs"] >= 2
    assert counts["create", "dijobs"] == 1


def _may(user: Any, path: str) -> bool:
    try:
        user.get(path)
    except ApiError:
        return False
    return True


def test_what_a_deleted_job_owns_is_deleted_too(kube: ApiServer, namespace: str) -> None:
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    owner = kube.admin.create(path, job("owner"))
    reference = {key: owner[key] for key in ("apiVersion", "kind")}
    reference |= {"name": "owner", "uid": owner["metadata"]["uid"]}
    maps = f"api/v1/namespaces/{namespace}/configmaps"
    kube.admin.create(maps, {"metadata": {"name": "owned", "ownerReferences": [reference]}})
    kube.admin.delete(f"{path}/owner", propagationPolicy="Background")
    left = lambda: [found["metadata"]["name"] for found in kube.admin.get(maps)["items"]]  # noqa: E731
    wait_until(lambda: "owned" not in left(), 20, "the garbage collector")


def test_after_a_restart_data_is_there_and_old_versions_are_gone(
    kube: ApiServer, namespace: str
) -> None:
    path = f"{DIJOBS}/namespaces/{namespace}/dijobs"
    old = kube.admin.create(path, job("first"))["metadata"]["resourceVersion"]
    kube.admin.create(path, job("second"))
    kube.compact()
    kube.restart()
    assert len(kube.admin.get(path)["items"]) == 2
    (gone,) = kube.admin.watch(path, old, seconds=5)
    assert (gone["type"], gone["object"]["code"]) == ("ERROR", 410)
