"""Where the script of a trial is: which key of which ConfigMap, mounted where."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ditk_ray.kube.pod_parts import each_container

SCRIPT_KEY = "config.py"
CONFIG_FOLDER = "/etc/ditk-ray"
"""Where the script is mounted if the template has no ConfigMap for it."""

_REFERENCES = ("configMap", "configMapRef", "configMapKeyRef")


def blank_keys(config_map: Mapping[str, Any] | None) -> list[str]:
    """Return the keys of a ConfigMap that hold nothing, or nothing but white space."""
    data = (config_map or {}).get("data") or {}
    return [str(key) for key, value in data.items() if not str(value or "").strip()]


def script_key(config_map: Mapping[str, Any] | None) -> str:
    """Return the key that is left empty for the script, or `SCRIPT_KEY`."""
    blank = blank_keys(config_map)
    return SCRIPT_KEY if SCRIPT_KEY in blank or not blank else blank[0]


def config_map_name(config_map: Mapping[str, Any]) -> str:
    """Return what the DIJob calls it; empty if it has no name."""
    return str((config_map.get("metadata") or {}).get("name") or "")


def config_map_references(tree: Any) -> Iterator[dict[str, Any]]:
    """Yield everything in a tree that names a ConfigMap: in volumes and in environments."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            if key in _REFERENCES and isinstance(value, dict):
                yield value
            else:
                yield from config_map_references(value)
    elif isinstance(tree, list):
        for item in tree:
            yield from config_map_references(item)


def mount_paths(spec: Mapping[str, Any], config_map: str) -> Iterator[str]:
    """Yield where containers see a ConfigMap."""
    for task, _, container in each_container(spec):
        volumes = [*(spec.get("volumes") or []), *(task["template"]["spec"].get("volumes") or [])]
        names = {
            str(volume.get("name"))
            for volume in volumes
            if any(item.get("name") == config_map for item in config_map_references(volume))
        }
        for mount in container.get("volumeMounts") or []:
            if str(mount.get("name")) in names and mount.get("mountPath"):
                yield str(mount["mountPath"]).rstrip("/")
