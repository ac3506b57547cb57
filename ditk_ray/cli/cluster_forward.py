"""`ditk-ray cluster forward`: a cluster's dashboard and MLflow on this machine's loopback."""

from __future__ import annotations

import argparse
import contextlib
import signal
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from ditk_ray.cli.cluster_arguments import add_cluster, cluster_settings
from ditk_ray.cli.object_output import print_table, tell
from ditk_ray.errors import DitkRayError, KubeError

if TYPE_CHECKING:
    from ditk_ray.cluster.kuberay.port_forward import PortForward
    from ditk_ray.cluster.kuberay.ray_cluster_health import Health
    from ditk_ray.kube.connection import Kube

_EXAMPLES = """\
examples:
  ditk-ray cluster forward rl
  ditk-ray cluster forward rl --port 9000 --mlflow_port 9001

Runs until Ctrl-C. Nothing but 127.0.0.1 is listened at, for whoever reaches a dashboard runs
code in the cluster. A port that is taken is replaced by the next that is free. While it runs,
~/.cluster_config has this address for the cluster, so that `ditk-ray submit --cluster NAME`
and the token in ~/.ray/tokens/NAME lead there; afterwards the file is as it was.
"""
_ENDINGS = (signal.SIGTERM, signal.SIGHUP)
_PORTS = {"dashboard": 8265, "mlflow": 5000}


def add_commands(verbs: Any) -> None:
    """Add `forward`."""
    parser = verbs.add_parser(
        "forward",
        help="have a cluster's dashboard and MLflow on 127.0.0.1",
        description="Lead ports of 127.0.0.1 to a cluster's dashboard and its MLflow, through "
        "the API server of Kubernetes. No kubectl is needed.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument("name", metavar="NAME", help="of the cluster, or of a RayJob")
    for flag, what in (("--port", "dashboard"), ("--mlflow_port", "mlflow")):
        parser.add_argument(
            flag,
            type=_port,
            default=_PORTS[what],
            help=f"of this machine for the {what} (default: %(default)s, or the next that is free)",
        )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="of clusters (default: ~/.cluster_config)"
    )
    add_cluster(parser)


def run(given: argparse.Namespace) -> int:
    """Forward until interrupted."""
    from ditk_ray.cluster.jobs.cluster_file import default_cluster_file
    from ditk_ray.cluster.kuberay.discovery import registered
    from ditk_ray.cluster.kuberay.found_clusters import find_cluster
    from ditk_ray.kube.connection import connect

    kube = connect(cluster_settings(given))
    health = find_cluster(kube, given.name, datetime.now(UTC))
    path = given.output or default_cluster_file()
    with _interruptible(), contextlib.ExitStack() as stack:
        dashboard = stack.enter_context(_dashboard(kube, health, given))
        mlflow = stack.enter_context(_mlflow(kube, health, given))
        _keep_token(kube, health)
        stack.enter_context(registered(path, health.name, dashboard.url))
        _print_addresses(health, dashboard, mlflow)
        threading.Event().wait()
    return 0


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Have Ctrl-C, SIGTERM and a closed terminal end the command in good order."""
    before = {number: signal.getsignal(number) for number in _ENDINGS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:  # nohup has it outlive its terminal
            signal.signal(number, _end)
    try:
        yield
    except KeyboardInterrupt:
        with contextlib.suppress(OSError):  # the terminal may be gone
            tell("forwarding has ended")
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(number: int, frame: FrameType | None) -> NoReturn:
    """End as Ctrl-C does, once: a terminal that is closed says so twice."""
    for each in _ENDINGS:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _dashboard(kube: Kube, health: Health, given: argparse.Namespace) -> PortForward:
    """Lead to the dashboard; raises a DitkRayError if that cannot be reached, or may not be."""
    from ditk_ray.cluster.kuberay.port_forward import PATIENCE, PortForward
    from ditk_ray.cluster.kuberay.ray_cluster import DASHBOARD, service_at
    from ditk_ray.cluster.kuberay.service_pods import ServicePods

    if not health.is_ready:
        tell(f"{health.name} is {health.state.lower()}: {health.why}")
    if health.job_address is None:
        raise DitkRayError(f"{health.name} has no Service for its head yet")
    pods = ServicePods(kube, service_at(health.job_address), DASHBOARD)
    pods.connect(PATIENCE).close()
    return PortForward(pods, given.port, tell)


@contextlib.contextmanager
def _mlflow(kube: Kube, health: Health, given: argparse.Namespace) -> Iterator[PortForward | None]:
    """Lead to MLflow, if the cluster has one."""
    from ditk_ray.cluster.kuberay.port_forward import PortForward
    from ditk_ray.cluster.kuberay.ray_cluster import MLFLOW, service_at
    from ditk_ray.cluster.kuberay.service_pods import ServicePods

    if health.mlflow_uri is None:
        yield None
        return
    pods = ServicePods(kube, service_at(health.mlflow_uri), MLFLOW)
    with PortForward(pods, given.mlflow_port, tell) as forward:
        yield forward


def _keep_token(kube: Kube, health: Health) -> None:
    from ditk_ray.cluster.kuberay.cluster_tokens import keep_token

    try:
        path = keep_token(kube, health)
    except KubeError as error:
        tell(f"the cluster's token was not kept: {error}")
        return
    if path is not None:
        tell(f"the cluster's token is in {path}")


def _print_addresses(health: Health, dashboard: PortForward, mlflow: PortForward | None) -> None:
    rows = [["dashboard", dashboard.url]]
    if mlflow is not None:
        rows.append(["mlflow", mlflow.url])
    print_table(rows)
    tell(
        f"send jobs with `ditk-ray submit --cluster {health.name} -- tune --cfg_class NAME`; "
        "Ctrl-C ends the forwarding"
    )


def _port(text: str) -> int:
    number = int(text)
    if not 1 <= number <= 65535:
        raise argparse.ArgumentTypeError("has to be from 1 to 65535")
    return number
