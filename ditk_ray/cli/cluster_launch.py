"""`ditk-ray cluster launch`, `run` and `forward`: make Ray clusters, and reach them."""

from __future__ import annotations

import argparse
import contextlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

from ditk_ray.cli.cluster import keep_token
from ditk_ray.cli.flags import KubeCommand, Parser, add_flags, flag_values
from ditk_ray.cli.output import note, print_table
from ditk_ray.cli.servers import interruptible
from ditk_ray.cli.tune import check_sweep
from ditk_ray.config.options import option, positive, seconds
from ditk_ray.config.options import port as read_port
from ditk_ray.errors import BadConfigError, DitkRayError
from ditk_ray.kube.connection import Kube, connect
from ditk_ray.kube.objects import Manifest
from ditk_ray.kube.port_forward import PATIENCE, PortForward, ServicePods
from ditk_ray.kube.yaml_text import yaml_documents
from ditk_ray.kuberay.apply import find_pieces, launch
from ditk_ray.kuberay.health import Health
from ditk_ray.kuberay.lookup import find_cluster, registered, wait_for_cluster
from ditk_ray.kuberay.manifests import launch_manifests
from ditk_ray.kuberay.options import Group, Job, Launch, checked, checked_launches
from ditk_ray.kuberay.ray_cluster import DASHBOARD, MLFLOW, costs_of, service_at
from ditk_ray.submit.clusters import default_cluster_file


class _GroupFlag(argparse.Action):
    """Keeps a flag about workers with the group that it follows."""

    def __call__(
        self, parser: Any, namespace: Any, values: Any, option_string: str | None = None
    ) -> None:
        *before, last = getattr(namespace, "groups", None) or [{}]
        if self.dest == "name":
            namespace.groups = [*before, last, {"name": values}]
            return
        if self.dest in ("node_selector", "tolerations"):
            values = (*last.get(self.dest, ()), values)
        namespace.groups = [*before, {**last, self.dest: True if self.nargs == 0 else values}]


class _ClusterCommand(KubeCommand):
    """A command that makes clusters; `cluster` is what the flags of `model` say, unchecked."""

    model: ClassVar[type[Launch]]
    cluster: Mapping[str, Any] = field(default_factory=dict)
    dry_run: bool = option("print the YAML, and send nothing; needs no cluster", False)

    @classmethod
    def fill(cls, parser: Parser) -> None:
        add_flags(parser, Group, group="workers, for each group", action=_GroupFlag)
        add_flags(parser, cls.model)
        super().fill(parser)

    @classmethod
    def read(cls, given: argparse.Namespace) -> Self:
        common, *groups = getattr(given, "groups", None) or [{}]
        cluster = flag_values(cls.model, given)
        cluster["groups"] = [{**common, **group} for group in groups or [{}]]
        return cls(**flag_values(cls, given), cluster=cluster)

    def values(self) -> dict[str, Any]:
        """Return what a `Launch` is made of; what is only printed may have no cluster to ask."""
        is_named = self.kube.kubeconfig is not None or self.kube.context is not None
        try:
            namespace = connect(self.kube).namespace
        except BadConfigError:
            if is_named or not self.dry_run:
                raise
            namespace = self.kube.namespace or "default"
        return {**self.cluster, "namespace": namespace}

    def send(self, made: Mapping[str, list[Manifest]]) -> Kube | None:
        """Have the objects be as they are given, by cluster; None if they are only printed."""
        manifests = [manifest for each in made.values() for manifest in each]
        if self.dry_run:
            print(yaml_documents(manifests), end="")
            return None
        kube = connect(self.kube)
        launch(kube, manifests, partial(print, flush=True))
        for name, each in made.items():
            note(f"billable while {name!r} exists: {costs_of(each)}")
        return kube

    def note_next(self, names: Iterable[str], *more: str) -> None:
        first, *others = names
        where = self.kube.as_flags()
        commands = [f"cluster status {first}{where}", *more]
        note("next:" + "".join(f"\n  ditk-ray {command}" for command in commands))
        note(f"when you are done:\n  ditk-ray cluster delete {' '.join([first, *others])}{where}")


class LaunchClusters(_ClusterCommand):
    r"""Make a Ray cluster, which KubeRay runs.

      ditk-ray cluster launch --name rl --image IMAGE --max_workers 8 --dry_run
      ditk-ray cluster launch --name rl --image IMAGE --cloud gke --workers 8 --cpu 8 \
          --accelerator nvidia-l4 --gpu 1 --memory 32G --spot
      ditk-ray cluster launch --name rl --image IMAGE --cpu 8 --group cpu --max_workers 20 \
          --group gpu --gpu 1 --max_workers 2
      ditk-ray cluster launch --name rl --image IMAGE --num_clusters 2    rl-0 and rl-1

    Groups of workers: without --group there is one, called `workers`. With it, each --group NAME
    opens a group, and the flags about workers that follow are that group's; those before the first
    --group hold for all groups that do not say otherwise.

    With a cluster come its MLflow server, a claim for results, an account, and a network policy by
    which only its own pods and the KubeRay operator reach it. Nothing is reachable from outside.
    Sending the same again changes nothing; with other options the cluster is changed.
    """

    model: ClassVar = Launch
    num_clusters: int = option("make NAME-0 to NAME-(N-1)", 1, metavar="N", parse=positive)
    wait: float | None = option(
        "wait for it to be ready, such as 10m", metavar="TIME", parse=seconds
    )

    def run(self) -> int:
        clusters = checked_launches(self.values(), self.num_clusters)
        made = {options.name: launch_manifests(options) for options in clusters}
        kube = self.send(made)
        if kube is None:
            return 0
        _note_stale(kube, made)
        first = clusters[0].name
        forward = f"cluster forward {first}{self.kube.as_flags()}"
        submit = f"submit --cluster {first} -- tune --cfg_class CartpoleDQNJobCfg"
        self.note_next(made, forward, submit)
        return _wait(kube, made, self.wait) if self.wait is not None else 0


class RunSweep(_ClusterCommand):
    r"""Run a sweep as a RayJob of KubeRay.

      ditk-ray cluster run --name night --image IMAGE --max_workers 8 -- tune --cfg_class \
          CartpoleDQNJobCfg --num_samples 100
      ditk-ray cluster run --name night --image IMAGE --working_dir https://HOST/code.zip -- tune \
          --cfg_class MyJobCfg

    KubeRay makes a cluster for the sweep, and deletes it when the sweep is over. If the cluster is
    lost, KubeRay makes another, on which the sweep resumes (`tune --resume_existing`); that is done
    --retries times. The code has to be in the image, or in a zip file that --working_dir names
    (https://, s3:// or gs://), with the job_cfgs folder at its top. Nothing of this machine is
    sent. The claims with results and records, and MLflow, remain until `ditk-ray cluster delete
    NAME`. Flags about groups of workers are those of `ditk-ray cluster launch`.
    """

    model: ClassVar = Job
    usage: ClassVar = "%(prog)s --name NAME --image IMAGE [options] -- tune ..."

    def run(self) -> int:
        check_sweep(self.cluster.get("command", ()))
        job = checked(Job, {"command": (), **self.values()})
        if self.send({job.name: launch_manifests(job)}) is not None:
            self.note_next([job.name])
        return 0


def _note_stale(kube: Kube, made: Mapping[str, list[Manifest]]) -> None:
    known = {(each["kind"], each["metadata"]["name"]) for sent in made.values() for each in sent}
    pieces = [piece for name in made for piece in find_pieces(kube, name)]
    stale = [piece.title for piece in pieces if (piece.resource.kind, piece.name) not in known]
    if stale:
        note(f"no longer part of it, but still there: {', '.join(stale)}")


def _wait(kube: Kube, names: Iterable[str], limit: float) -> int:
    code = 0
    for name in names:
        health = wait_for_cluster(kube, name, limit, note)
        if health.is_ready:
            print(f"raycluster/{name} ready", flush=True)
        else:
            note(f"error: {name} is not ready: {health.why}")
            code = 1
    return code


class Forward(KubeCommand):
    """Forward ports of 127.0.0.1 to a cluster's dashboard and its MLflow, without kubectl.

      ditk-ray cluster forward rl
      ditk-ray cluster forward rl --port 9000 --mlflow_port 9001

    Runs until Ctrl-C, through the API server of Kubernetes. It listens at 127.0.0.1 only, as
    anyone who can reach a dashboard can run code in the cluster. A port that is taken is replaced
    by the next free one. While it runs, ~/.cluster_config has this address for the cluster, so that
    `ditk-ray submit --cluster NAME` and the token in ~/.ray/tokens/NAME lead there; afterwards the
    file is as it was.
    """

    name: str = option("name of the cluster, or of a RayJob", positional=True)
    port: int = option(
        "local port for the dashboard (default: %(default)s, or the next free one)",
        8265,
        parse=read_port,
    )
    mlflow_port: int = option(
        "local port for MLflow (default: %(default)s, or the next free one)",
        5000,
        parse=read_port,
    )
    output: Path | None = option("cluster file (default: ~/.cluster_config)", metavar="FILE")

    def run(self) -> int:
        kube = connect(self.kube)
        health = find_cluster(kube, self.name)
        path = self.output or default_cluster_file()
        with interruptible("forwarding has ended"), contextlib.ExitStack() as stack:
            dashboard = stack.enter_context(_dashboard(kube, health, self.port))
            rows = [["dashboard", dashboard.url]]
            if health.mlflow_uri is not None:
                pods = ServicePods(kube, service_at(health.mlflow_uri), MLFLOW)
                mlflow = stack.enter_context(PortForward(pods, self.mlflow_port, note))
                rows.append(["mlflow", mlflow.url])
            keep_token(kube, health)
            stack.enter_context(registered(path, health.name, dashboard.url))
            print_table(rows)
            note(
                f"send jobs with `ditk-ray submit --cluster {health.name} -- tune --cfg_class "
                "NAME`; Ctrl-C ends the forwarding"
            )
            threading.Event().wait()
        return 0


def _dashboard(kube: Kube, health: Health, wanted: int) -> PortForward:
    if not health.is_ready:
        note(f"{health.name} is {health.state.lower()}: {health.why}")
    if health.job_address is None:
        raise DitkRayError(f"{health.name} has no Service for its head yet")
    pods = ServicePods(kube, service_at(health.job_address), DASHBOARD)
    pods.check(PATIENCE)
    return PortForward(pods, wanted, note)
