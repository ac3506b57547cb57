"""KubeRay's own resources on the tests' API server: RayCluster and RayJob."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

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
        _wait_until_known(admin, plural)


@contextlib.contextmanager
def without_kuberay(admin: ApiClient) -> Iterator[None]:
    """Have the API server not know KubeRay's kinds for a while; their objects outlive that."""
    _serve(admin, is_served=False)
    try:
        for plural in _PLURALS:
            _wait_until_known(admin, plural, is_known=False)
        yield
    finally:
        _serve(admin, is_served=True)
        for plural in _PLURALS:
            _wait_until_known(admin, plural)


def _serve(admin: ApiClient, *, is_served: bool) -> None:
    for plural in _PLURALS:
        path = f"{_DEFINITIONS}/{plural}.ray.io"
        versions = admin.get(path)["spec"]["versions"]
        changed = [{**version, "served": is_served} for version in versions]
        admin.patch(path, {"spec": {"versions": changed}})


def _wait_until_known(admin: ApiClient, plural: str, *, is_known: bool = True) -> None:
    what = f"the server {'to know' if is_known else 'not to know'} {plural}"
    wait_until(lambda: _is_known(admin, plural) == is_known, 60, what)


def _crd_files() -> list[Path]:
    """Return KubeRay's definitions."""
    folder = os.environ.get("DITK_RAY_CRDS")
    if not folder:
        _do_without("KubeRay's CRDs are not here: DITK_RAY_CRDS names a folder with them")
    files = [Path(folder) / name for name in _FILES]
    missing = [str(file) for file in files if not file.is_file()]
    if missing:
        _do_without(f"DITK_RAY_CRDS has no {', '.join(missing)}")
    return files


def _do_without(reason: str) -> NoReturn:
    """Skip the test, or fail it where all of them have to run."""
    if os.environ.get("DITK_RAY_REQUIRE_KUBE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


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
