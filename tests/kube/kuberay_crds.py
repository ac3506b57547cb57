"""KubeRay's own resources on the tests' API server: RayCluster and RayJob."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.api_client import ApiClient, ApiError
from tests.processes import wait_until

RAY = "apis/ray.io/v1"
_DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_PLURALS = ("rayclusters", "rayjobs")
_FILES = ("ray.io_rayclusters.yaml", "ray.io_rayjobs.yaml")


def install_kuberay(admin: ApiClient) -> None:
    """Have the API server know RayClusters and RayJobs; does nothing if it does."""
    if all(_is_known(admin, plural) for plural in _PLURALS):
        return  # reading the files takes seconds
    for file in _crd_files():
        definition = _for_old_server(yaml.load(file.read_text(), Loader=_loader()))
        try:
            admin.create(_DEFINITIONS, definition)
        except ApiError as error:
            if error.code != 409:
                raise
    for plural in _PLURALS:
        wait_until(lambda name=plural: _is_known(admin, name), 60, f"the server to know {plural}")


def _crd_files() -> list[Path]:
    """Return KubeRay's definitions; where nobody says where they are, skip."""
    folder = os.environ.get("DITK_RAY_CRDS")
    if not folder:
        pytest.skip("KubeRay's CRDs are not here: DITK_RAY_CRDS names a folder with them")
    files = [Path(folder) / name for name in _FILES]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        reason = f"DITK_RAY_CRDS has no {', '.join(missing)}"
        (pytest.fail if os.environ.get("DITK_RAY_REQUIRE_KUBE") == "1" else pytest.skip)(reason)
    return files


def _loader() -> Any:
    """Return the fast reader where there is one: the files have 40000 lines."""
    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _for_old_server(schema: Any) -> Any:
    """Leave out what Kubernetes 1.20 does not take: it is about merging lists, not about shape."""
    if isinstance(schema, list):
        return [_for_old_server(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    dropped = {"x-kubernetes-list-type", "x-kubernetes-list-map-keys"}
    kept = {key: value for key, value in schema.items() if key not in dropped}
    if kept.get("default") == "":
        del kept["default"]
    return {key: _for_old_server(value) for key, value in kept.items()}


def _is_known(admin: ApiClient, plural: str) -> bool:
    try:
        admin.get(f"{RAY}/{plural}", limit="1")
    except ApiError:
        return False
    return True
