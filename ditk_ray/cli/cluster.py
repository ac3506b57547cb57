"""`ditk-ray cluster`: Ray clusters on Kubernetes: check, list, status, discover and delete."""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from ditk_ray.cli import output
from ditk_ray.cli.flags import Family, KubeCommand, ObjectCommand
from ditk_ray.cli.output import note, print_items, print_section, print_value
from ditk_ray.config.options import option, seconds
from ditk_ray.errors import BadConfigError, KubeError, Problem
from ditk_ray.kube.connection import Kube, connect
from ditk_ray.kube.objects import VOLUME_CLAIMS, Piece, show_age
from ditk_ray.kuberay import lookup
from ditk_ray.kuberay.apply import cluster_of, find_pieces, wait_until_gone
from ditk_ray.kuberay.check import check_cluster
from ditk_ray.kuberay.health import Health, JobHealth
from ditk_ray.kuberay.ray_cluster import claim_text
from ditk_ray.submit.clusters import KnownCluster, default_cluster_file, write_clusters
from ditk_ray.util.suggest import did_you_mean

FAMILY = Family(
    {
        "check": (".cluster:Check", "say what is missing for Ray clusters on this Kubernetes"),
        "launch": (".cluster_launch:LaunchClusters", "make a cluster, or several"),
        "run": (".cluster_launch:RunSweep", "run a sweep with a cluster of its own; it resumes"),
        "list": (".cluster:ListAll", "list Ray clusters and RayJobs, and what is wrong with them"),
        "status": (".cluster:Status", "show whether a Ray cluster is ready, and why not"),
        "discover": (".cluster:Discover", "write addresses of clusters into ~/.cluster_config"),
        "forward": (".cluster_launch:Forward", "have a cluster's dashboard on 127.0.0.1"),
        "delete": (".cluster:Delete", "delete clusters and jobs"),
    },
    """Manage Ray clusters that KubeRay runs on Kubernetes.

      ditk-ray cluster launch --name rl --image IMAGE --workers 2 --cpu 4 --dry_run
      ditk-ray cluster run --name night --image IMAGE -- tune --cfg_class CartpoleDQNJobCfg
      ditk-ray cluster status rl --wait 10m
      ditk-ray cluster forward rl
      ditk-ray cluster delete rl

    `ditk-ray cluster COMMAND --help` explains each.
    """,
)


class Check(ObjectCommand):
    """Check for KubeRay, for this account's permissions, and for shared storage.

      ditk-ray cluster check --namespace rl

    Changes nothing. Exit code: 0 if nothing is missing, else 1. "unknown" is
    what this account has no permission to see, or what only a launch shows.
    """

    def run(self) -> int:
        found = check_cluster(connect(self.kube))
        print_items([asdict(each) for each in found], ["about", "verdict", "text"], self.format)
        for each in found if self.format == "table" else ():
            if each.hint:
                print(f"\n{each.about}: {each.hint}")
        return 1 if any(each.verdict == "missing" for each in found) else 0


class ListAll(ObjectCommand):
    """List all Ray clusters and RayJobs of a namespace, not only ditk-ray's.

      ditk-ray cluster list --namespace rl

    WORKERS shows how many are ready and wanted now, and the limits of the autoscaler; SIZE is what
    the wanted ones and the head request, which is billable while the cluster exists.
    `ditk-ray cluster status NAME` shows one cluster in detail.
    """

    def run(self) -> int:
        kube = connect(self.kube)
        clusters, jobs = lookup.find_all(kube)
        claims = lookup.find_claims(kube)
        if self.format != "table":
            found = {"clusters": [*map(asdict, clusters)], "jobs": [*map(asdict, jobs)]}
            print_value({**found, "claims": claims}, self.format)
            return 0
        rows = [{**vars(each), "mlflow": each.mlflow_uri} for each in clusters]
        print_items(rows, ["name", "state", "workers", "size", "age", "mlflow", "why"], "table")
        if clusters and jobs:
            print()
        rows = [{**vars(each), "rayjob": each.name, "job": each.job_status} for each in jobs]
        print_items(rows, ["rayjob", "state", "job", "cluster", "age", "why"], "table")
        if not clusters and not jobs:
            note(f"no Ray clusters in namespace {kube.namespace!r}")
        if claims:
            note(f"claims, billable with or without a cluster: {', '.join(claims)}")
        return 0


class Status(ObjectCommand):
    """Show a Ray cluster's groups, pods and addresses, what is wrong with it, and what to do.

      ditk-ray cluster status rl
      ditk-ray cluster status rl --wait 10m     until it is ready, or the time is over

    NAME may also be a RayJob's. A cluster is ready when its head and its MLflow answer, and the
    minimum of its workers is up. Exit code: 0 if it is ready (a RayJob: if it has not failed),
    else 1.
    """

    name: str = option("name of the cluster, or of a RayJob", positional=True)
    wait: float = option("wait for it to be ready", 0.0, metavar="TIME", parse=seconds)

    def run(self) -> int:
        kube = connect(self.kube)
        job = lookup.find_job(kube, self.name)
        health = None
        if job is None or not job.is_over:
            try:
                health = lookup.wait_for_cluster(kube, self.name, self.wait, note)
            except BadConfigError:
                if job is None:
                    raise  # else it waits in a queue, or for its next try
        costs = lookup.find_costs(kube, health.name if health else self.name)
        if self.format == "table":
            _print_status(health, job, costs)
        else:
            about = {"job": asdict(job) if job else None, "costs": costs}
            print_value({**(asdict(health) if health else {}), **about}, self.format)
        is_well = job.is_ok if job is not None else health is not None and health.is_ready
        return 0 if is_well else 1


def _print_status(health: Health | None, job: JobHealth | None, costs: str) -> None:
    if job is not None:
        state = f"{job.state} {job.job_status}".strip()
        failed = f"{job.failed} times" if job.failed else ""
        output.print_facts({"RayJob": job.name, "State": state, "Failed": failed, "Why": job.why})
    if health is not None:
        _print_health(health)
    if costs:
        print(f"Billable while it exists: {costs}")
    if health is not None and health.is_ready:
        note(
            f"reach it with `ditk-ray cluster forward {health.name}`, and meanwhile\n"
            f"`ditk-ray submit --cluster {health.name} -- tune --cfg_class NAME`"
        )


def _print_health(health: Health) -> None:
    secret = health.token_secret
    guard = f"a token, in Secret {secret}" if secret else "nothing: open to anyone who can reach it"
    output.print_facts(
        {
            "Name": health.name,
            "Namespace": health.namespace,
            "State": health.state,
            "Why": health.why,
            "Age": show_age(health.age),
            "Jobs": health.job_address or "no Service yet",
            "MLflow": health.mlflow_uri or "none",
            "Guarded by": guard,
        }
    )
    groups = [
        {"name": each.name, "ready": f"{each.ready}/{each.desired}"}
        | {"min": each.least, "max": each.most}
        for each in health.groups
    ]
    print_section("Groups", groups, ["name", "ready", "min", "max"])
    print_section("Pods", health.pods, ["name", "group", "state", "node", "age", "why"])
    if health.problems:
        print("Problems:")
    for problem in health.problems:
        print(f"  {problem.what}" + (f"\n    {problem.hint}" if problem.hint else ""))


class Discover(ObjectCommand):
    """Write the addresses and tokens of ready Ray clusters down for `ditk-ray submit`.

      ditk-ray cluster discover --namespace rl

    Writes a line `name: NAME address: http://NAME-head-svc.NAMESPACE.svc:8265` for each cluster
    that is ready, and keeps its token in ~/.ray/tokens/NAME. Lines of other clusters stay. These
    addresses are known inside Kubernetes only; outside, `ditk-ray cluster forward NAME` writes the
    address of its port into the file for as long as it runs. Exit code: 1 if none is ready.
    """

    output: Path | None = option("(default: ~/.cluster_config)", metavar="FILE")

    def run(self) -> int:
        kube = connect(self.kube)
        clusters, _ = lookup.find_all(kube)
        path = self.output or default_cluster_file()
        found, items = [], []
        for each in clusters:
            if each.is_ready and each.job_address:
                found.append(KnownCluster(each.name, each.job_address))
                items.append({**vars(found[-1]), "mlflow_uri": each.mlflow_uri})
                keep_token(kube, each)
            else:
                note(f"{each.name} is left out: {each.why}")
        print_items(items, ["name", "address", "mlflow_uri"], self.format)
        if not found:
            note(f"no Ray cluster in namespace {kube.namespace!r} is ready")
            return 1
        write_clusters(path, found)
        note(f"written to {path}")
        if not os.environ.get("KUBERNETES_SERVICE_HOST"):  # inside, Services have names
            note("outside Kubernetes, reach them with `ditk-ray cluster forward NAME`")
        return 0


def keep_token(kube: Kube, health: Health) -> None:
    """Keep a cluster's token where `submit` looks for it, and say where that is, or why not."""
    try:
        if path := lookup.keep_token(kube, health):
            note(f"the token of {health.name} is in {path}")
    except KubeError as error:
        note(f"the token of {health.name} was not kept: {error}")


def without_kuberay_option() -> Any:
    return option("KubeRay was uninstalled: where its kinds are unknown, no cluster exists", False)


class Delete(KubeCommand):
    """Delete Ray clusters and RayJobs with all that was made for them.

      ditk-ray cluster delete rl                     after a question; results are kept
      ditk-ray cluster delete rl --results --yes     with all results and records
      ditk-ray cluster delete --all                  all of ditk-ray's in the namespace

    What `cluster launch` and `cluster run` made is removed, by its labels, and nothing else. The
    claims with the results and MLflow's records are kept unless --results is given: their storage
    remains billable, and a cluster of the same name finds them again. Lines of ~/.cluster_config
    that lead to what is deleted are taken out, with the tokens of ~/.ray/tokens.
    """

    names: tuple[str, ...] = option("clusters or jobs", (), positional=True, metavar="NAME")
    all: bool = option("all that ditk-ray made", False)
    results: bool = option("also the claims, with all results and records", False)
    without_kuberay: bool = without_kuberay_option()
    yes: bool = option("do not ask", False)
    wait: float | None = option("wait until all is gone, such as 5m", metavar="TIME", parse=seconds)

    def run(self) -> int:
        if bool(self.names) == self.all:
            raise BadConfigError(Problem("delete", "say which clusters: NAME, or --all"))
        kube = connect(self.kube)
        found = _chosen(kube, self)
        kept = [each for each in found if each.resource == VOLUME_CLAIMS and not self.results]
        pieces = [piece for piece in found if piece not in kept]
        if not pieces:
            note(f"nothing to delete in namespace {kube.namespace!r}")
            note_kept(kept)
            return 0
        if not self.yes:
            rows = [{"cluster": cluster_of(piece), "object": piece.title} for piece in pieces]
            print_items(rows, ["cluster", "object"], "table")
        if not output.agrees(f"delete these {len(pieces)} objects?", self.yes):
            return 1
        for piece in pieces:
            if kube.delete(piece):
                print(f"{piece.title} deleted", flush=True)
        _forget(kube, set(map(cluster_of, pieces)))
        note_kept(kept)
        if self.wait is None:
            return 0
        left = wait_until_gone(kube, pieces, self.wait, without_kuberay=self.without_kuberay)
        if left:
            note(f"error: still there: {', '.join(piece.title for piece in left)}")
        return 1 if left else 0


def note_kept(kept: Sequence[Piece]) -> None:
    if kept:
        claims = ", ".join(claim_text(piece.manifest) for piece in kept)
        note(f"kept, with their data: {claims}\n  this storage is billable; --results deletes it")


def _chosen(kube: Kube, given: Delete) -> list[Piece]:
    find = partial(find_pieces, kube, without_kuberay=given.without_kuberay)
    if given.all:
        return find()
    found = {name: find(name) for name in dict.fromkeys(given.names)}
    if missing := [name for name, pieces in found.items() if not pieces]:
        known = set(map(cluster_of, find()))
        what = f"ditk-ray made no such cluster or job in namespace {kube.namespace!r}"
        raise BadConfigError([Problem(name, what, did_you_mean(name, known)) for name in missing])
    return [piece for pieces in found.values() for piece in pieces]


def _forget(kube: Kube, names: Collection[str]) -> None:
    """Take the clusters out of what `submit` knows: jobs could not be sent to them any more."""
    try:
        lookup.forget(default_cluster_file(), kube.namespace, names)
    except BadConfigError as error:
        note(f"they are still known to `ditk-ray submit`: {error}")
