"""What Kubernetes would not take of a job: names that are too long, a ConfigMap too large."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ditk_ray.config import dotted
from ditk_ray.config.quantities import show_bytes
from ditk_ray.errors import Problem
from ditk_ray.kube.labels import MAX_NAME
from ditk_ray.kube.pod_parts import each_task, task_name

MAX_CONFIG_MAP_BYTES = 1024 * 1024


def name_problems(spec: dotted.Tree, name: str) -> Iterator[Problem]:
    """Yield which names that the operator makes of a job's are too long."""
    for task, where in each_task(spec):
        pod = f"{name}-{task_name(task)}-{task.get('replicas', 1) - 1}"
        if len(pod) > MAX_NAME:
            what = f"a pod would be called {pod}, which has {len(pod)} characters of {MAX_NAME}"
            hint = f"make metadata.name shorter by {len(pod) - MAX_NAME}, or the task's name"
            yield Problem(f"metadata.name, {where}", what, hint)
    if len(f"di-{name}") > MAX_NAME:
        what = f"the job's Service would be called di-{name}, which is longer than {MAX_NAME}"
        yield Problem("metadata.name", what, "make it shorter")


def size_problems(config_map: dotted.Tree, key: str) -> Iterator[Problem]:
    """Say so if a ConfigMap, with the script under `key`, is too large."""
    parts: dict[str, Any] = config_map.get("data") or {}
    size = sum(len(str(value).encode()) for value in parts.values())
    # Kubernetes counts what base64 stands for.
    binary = (config_map.get("binaryData") or {}).values()
    size += sum(len(str(value)) * 3 // 4 for value in binary)
    if size > MAX_CONFIG_MAP_BYTES:
        script = show_bytes(len(str(parts.get(key, "")).encode()))
        what = f"would hold {show_bytes(size)}, {script} of it the script; Kubernetes takes 1 MiB"
        yield Problem("ConfigMap", what, "keep large data on a volume, and its path in the config")
