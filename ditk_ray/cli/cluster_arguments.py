"""The arguments by which commands name a Kubernetes cluster."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ditk_ray.kube.connection import KubeSettings


def add_cluster(parser: Any) -> None:
    """Add the arguments that name a cluster and a namespace."""
    parser.add_argument(
        "--kubeconfig",
        metavar="FILE",
        type=Path,
        help="(default: $KUBECONFIG, ~/.kube/config, or the cluster that this runs in)",
    )
    parser.add_argument("--context", metavar="NAME", help="of the kubeconfig (default: its own)")
    parser.add_argument("--namespace", metavar="NAME", help="(default: the context's)")


def cluster_settings(given: argparse.Namespace) -> KubeSettings:
    """Return which cluster the arguments name."""
    from ditk_ray.kube.connection import KubeSettings

    return KubeSettings(given.kubeconfig, given.context, given.namespace)


def shown_cluster(given: argparse.Namespace) -> str:
    """Return the arguments that name the cluster, to be put behind another command."""
    words = {
        "--kubeconfig": given.kubeconfig,
        "--context": given.context,
        "--namespace": given.namespace,
    }
    return "".join(f" {flag} {shlex.quote(str(value))}" for flag, value in words.items() if value)
