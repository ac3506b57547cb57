"""What a Ray cluster costs money for while it stands, in words."""

from __future__ import annotations

from ditk_ray.cluster.kuberay.launch_options import LaunchedGroup, LaunchOptions
from ditk_ray.config.quantities import show_bytes


def standing_costs(options: LaunchOptions) -> list[str]:
    """Return a line for each thing that somebody pays for, used or not."""
    head = f"its head: {options.head_cpu} CPU, {show_bytes(options.head_memory)}"
    lines = [head, *(_workers(group) for group in options.groups)]
    claims = []
    if options.has_mlflow:
        lines.append("its MLflow server: 0.5 CPU, 2 GiB")
        claims.append(f"{options.name}-mlflow, 20Gi")
    if options.results.existing_claim is None:
        claims.append(f"{options.results_claim}, {options.results.size}")
    if claims:
        lines.append(f"storage, which stays when the cluster is deleted: {'; '.join(claims)}")
    return lines


def _workers(group: LaunchedGroup) -> str:
    many = f"{group.least} to {group.most}" if group.least != group.most else str(group.most)
    gpus = f", {group.gpu} GPU" if group.gpu else ""
    size = f"{group.cpu} CPU{gpus}, {show_bytes(group.memory)}"
    idle = " (those without work leave after 5 minutes)" if group.least != group.most else ""
    return f"{many} workers of group {group.name!r}: {size} each{idle}"
