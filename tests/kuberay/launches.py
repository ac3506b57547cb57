"""Launches that tests share: the arguments of each, whose YAML is in the folder `manifests`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

GOLDEN = Path(__file__).parent / "manifests"
COMMON = ["--image", "example.com/rl:1", "--ray_version", "2.60.0"]

_LINES = {
    "plain": "launch --name rl",
    "gke": "launch --name rl --cloud gke --workers 8 --gpu 1 --accelerator nvidia-l4 --cpu 8 "
    "--memory 32G --spot --image_pull_secret registry --head_cpu 4 --head_memory 12G",
    "groups": "launch --name rl --num_clusters 2 --cpu 8 "
    "--group cpu --workers 2 --min_workers 1 --max_workers 20 "
    "--group gpu --gpu 2 --accelerator NVIDIA-L4 --cpu 16 --node_selector pool=rl "
    "--toleration dedicated=rl:NoSchedule --toleration scarce --results_claim shared --no_mlflow",
    "queued": "launch --name rl --queue team --workers 3 --mlflow_uri https://mlflow.example.com "
    "--storage_class nfs --results_size 512M",
    "job": "run --name night --retries 5 --deadline 24h --queue team "
    "--working_dir https://example.com/code.zip "
    "-- tune --cfg_class CartpoleDQNJobCfg --set 'env.note=by night' --name by-night",
}


def with_flags(arguments: list[str], *flags: str) -> list[str]:
    """Add flags to a command, before the words that are another's."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return [*arguments[:end], *flags, *arguments[end:]]


LAUNCHES = {name: with_flags(shlex.split(line), *COMMON) for name, line in _LINES.items()}
"""The words after `ditk-ray cluster`."""


def pods_of(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the templates of all pods that come of an object."""
    spec = manifest.get("spec", {})
    cluster = spec.get("rayClusterSpec", spec)
    if "headGroupSpec" in cluster:
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        return [group["template"] for group in groups]
    return [spec["template"]] if "template" in spec else []
