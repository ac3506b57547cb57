"""The arguments by which `cluster launch` and `cluster run` describe a Ray cluster."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.errors import BadConfigError

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.group_check import GroupRequest
    from ditk_ray.cluster.kuberay.launch_check import LaunchRequest

GROUP_RULE = """\
Groups of workers: without --group there is one, called `workers`. With it, each --group NAME
opens a group, and the flags about workers that follow are that group's; those before the first
--group hold for all groups that do not say otherwise.
"""


class _GroupFlag(argparse.Action):
    """Keeps a flag about workers with the group that it follows."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        groups = list(getattr(namespace, "groups", None) or [{}])
        if self.dest == "name_of_group":
            groups.append({"name": values})
        else:
            groups[-1] = {**groups[-1], **self._added(groups[-1], values)}
        namespace.groups = groups

    def _added(self, group: dict[str, Any], values: Any) -> dict[str, Any]:
        if self.dest in ("node_selector", "tolerations"):
            return {self.dest: (*group.get(self.dest, ()), values)}
        return {self.dest: True if self.nargs == 0 else values}


def add_launch(parser: argparse.ArgumentParser) -> None:
    """Add the arguments that describe a cluster."""
    parser.add_argument("--name", metavar="NAME", help="of the cluster")
    parser.add_argument("--image", metavar="IMAGE", help="what all its pods run")
    _add_workers(parser.add_argument_group("workers, for each group"))
    _add_head(parser.add_argument_group("the rest of the cluster"))
    _add_storage(parser.add_argument_group("results and records"))
    add_cluster(parser)
    parser.add_argument(
        "--dry_run", action="store_true", help="print the YAML, and send nothing; needs no cluster"
    )


def _add_workers(parser: Any) -> None:
    def flag(name: str, text: str, **options: Any) -> None:
        parser.add_argument(
            name, action=_GroupFlag, default=argparse.SUPPRESS, help=text, **options
        )

    flag("--group", "begin a group", dest="name_of_group", metavar="NAME")
    flag("--workers", "how many at first (default: 1)", metavar="N")
    flag("--min_workers", "how many at least (default: 0)", metavar="N")
    flag("--max_workers", "how many at most (default: --workers)", metavar="N")
    flag("--cpu", "CPUs of each (default: 4)", metavar="N")
    flag("--memory", "memory of each (default: 16G)", metavar="SIZE")
    flag("--gpu", "GPUs of each (default: 0)", metavar="N")
    flag("--accelerator", "which GPU, such as nvidia-l4", metavar="NAME")
    flag("--spot", "on spot nodes, which are cheap and may be taken away", dest="is_spot", nargs=0)
    flag("--node_selector", "a label that its nodes have (repeatable)", metavar="KEY=VALUE")
    flag(
        "--toleration",
        "a taint that it bears (repeatable)",
        dest="tolerations",
        metavar="KEY[=VALUE][:EFFECT]",
    )


def _add_head(parser: Any) -> None:
    parser.add_argument(
        "--cloud",
        choices=["gke", "generic"],
        default="generic",
        help="how nodes are labelled: as GKE does it, or by NVIDIA's feature discovery and your "
        "own --node_selector (default: %(default)s)",
    )
    parser.add_argument("--head_cpu", metavar="N", default="2", help="(default: %(default)s)")
    parser.add_argument(
        "--head_memory", metavar="SIZE", default="8G", help="(default: %(default)s)"
    )
    parser.add_argument(
        "--ray_version", metavar="X.Y.Z", help="the image's (default: that of this machine)"
    )
    parser.add_argument(
        "--queue",
        metavar="NAME",
        help="a LocalQueue of Kueue, which decides when it starts; the number of workers is "
        "fixed then",
    )
    parser.add_argument(
        "--image_pull_secret", metavar="NAME", help="a Secret to pull the image with"
    )


def _add_storage(parser: Any) -> None:
    parser.add_argument(
        "--storage_class",
        metavar="NAME",
        help="for the results, with ReadWriteMany (default: the cluster's default; GKE: "
        "standard-rwx)",
    )
    parser.add_argument(
        "--results_size", metavar="SIZE", help="of their claim (default: 100G; GKE: 1T)"
    )
    parser.add_argument(
        "--results_claim", metavar="NAME", help="keep them on a claim that is there already"
    )
    parser.add_argument(
        "--no_mlflow",
        action="store_true",
        help="no MLflow server: sweeps keep a store among the results",
    )
    parser.add_argument(
        "--mlflow_uri", metavar="URI", help="record on this server instead of one of its own"
    )


def launch_request(given: argparse.Namespace, **more: Any) -> LaunchRequest:
    """Return what the arguments ask for, unchecked."""
    from importlib.metadata import version

    from ditk_ray.cluster.kuberay.launch_check import LaunchRequest

    return LaunchRequest(
        name=given.name,
        image=given.image,
        namespace=_namespace(given),
        ray_version=given.ray_version or version("ray"),
        cloud=given.cloud,
        groups=_groups(given),
        head_cpu=given.head_cpu,
        head_memory=given.head_memory,
        queue=given.queue,
        storage_class=given.storage_class,
        results_claim=given.results_claim,
        results_size=given.results_size,
        has_mlflow=not given.no_mlflow,
        mlflow_uri=given.mlflow_uri,
        pull_secret=given.image_pull_secret,
        **more,
    )


def _groups(given: argparse.Namespace) -> tuple[GroupRequest, ...]:
    from ditk_ray.cluster.kuberay.group_check import GroupRequest

    common, *groups = getattr(given, "groups", None) or [{}]
    return tuple(GroupRequest(**{**common, **group}) for group in groups or [{}])


def _namespace(given: argparse.Namespace) -> str:
    """Return the namespace; what is only printed may have no cluster to ask."""
    from ditk_ray.kube.connection import connect

    settings = cluster_settings(given)
    is_named = settings.kubeconfig is not None or settings.context is not None
    try:
        return connect(settings).namespace
    except BadConfigError:
        if is_named or not given.dry_run:
            raise
        return settings.namespace or "default"
