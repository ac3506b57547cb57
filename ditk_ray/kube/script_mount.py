"""Having the containers of a job see the ConfigMap that holds its script."""

from __future__ import annotations

from ditk_ray.config import dotted
from ditk_ray.kube.pod_parts import containers_of, each_task, main_container
from ditk_ray.kube.script_place import CONFIG_FOLDER, config_map_references

_VOLUME = "ditk-ray-config"


def mount_script(spec: dotted.Tree, config_map: str, key: str) -> None:
    """Mount the script in every container; one that has nothing to run runs it."""
    for task, _ in each_task(spec):
        pod = task["template"]["spec"]
        volume = {"name": _VOLUME, "configMap": {"name": config_map}}
        pod["volumes"] = [*(pod.get("volumes") or []), volume]
        for container in containers_of(task):
            mount = {"name": _VOLUME, "mountPath": CONFIG_FOLDER}
            container["volumeMounts"] = [*(container.get("volumeMounts") or []), mount]
        main = main_container(task)
        if not main.get("command") and not main.get("args"):
            main["command"] = ["python", "-u", f"{CONFIG_FOLDER}/{key}"]


def rename_config_map(spec: dotted.Tree, old: str, new: str) -> None:
    """Have all that refers to one ConfigMap refer to another."""
    for reference in config_map_references(spec):
        if reference.get("name") == old:
            reference["name"] = new
