"""Checking the groups of workers that a user asks for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ditk_ray.cluster.kuberay import gke
from ditk_ray.cluster.kuberay.launch_options import LaunchedGroup
from ditk_ray.cluster.kuberay.object_names import (
    MAX_LABEL,
    is_label_key,
    is_label_value,
    name_problem,
)
from ditk_ray.cluster.kuberay.placement import GKE, Placement, parse_toleration, place_workers
from ditk_ray.cluster.kuberay.request_values import RequestValues
from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import Problem

_HEAD = "head"


@dataclass(frozen=True)
class GroupRequest:
    """What a user says about a group, as texts; None is what is not said."""

    name: str = "workers"
    workers: str | None = None
    min_workers: str | None = None
    max_workers: str | None = None
    cpu: str = "4"
    memory: str = "16G"
    gpu: str = "0"
    accelerator: str | None = None
    is_spot: bool = False
    node_selector: tuple[str, ...] = ()
    tolerations: tuple[str, ...] = ()


def check_groups(
    requests: Sequence[GroupRequest], cloud: str, is_queued: bool, values: RequestValues
) -> tuple[LaunchedGroup, ...]:
    """Return the groups; what is wrong with them is added to the problems of `values`."""
    names = [request.name for request in requests]
    for name in sorted({name for name in names if names.count(name) > 1}):
        values.problems.append(Problem(f"--group {name}", "is there more than once"))
    return tuple(_GroupCheck(each, cloud, is_queued, values).group() for each in requests)


class _GroupCheck:
    """Reads one request, under the name of its group."""

    def __init__(
        self, request: GroupRequest, cloud: str, is_queued: bool, values: RequestValues
    ) -> None:
        self._given = request
        self._cloud = cloud
        self._is_queued = is_queued
        self._values = values

    def group(self) -> LaunchedGroup:
        wrong = name_problem(self._given.name, MAX_LABEL)
        if self._given.name == _HEAD:
            wrong = "is what KubeRay calls the group of the head"
        if wrong:
            self._values.problems.append(Problem(f"--group {self._given.name}", wrong))
        replicas, least, most = self._sizes()
        gpus = self._values.count(self._flag("--gpu"), self._given.gpu)
        self._check_accelerator(gpus)
        return LaunchedGroup(
            name=self._given.name,
            replicas=replicas,
            least=least,
            most=most,
            cpu=self._values.count(self._flag("--cpu"), self._given.cpu, 1),
            memory=self._values.memory(self._flag("--memory"), self._given.memory),
            gpu=gpus,
            placement=self._placement(gpus),
        )

    def _sizes(self) -> tuple[int, int, int]:
        """Return how many workers there are at first, at least and at most."""
        given, count = self._given, self._values.count
        before = len(self._values.problems)
        workers = count(self._flag("--workers"), given.workers or given.min_workers or "1")
        if self._is_queued:
            return self._fixed(workers)
        least = count(self._flag("--min_workers"), given.min_workers or "0")
        default = str(max(workers, least, 1))
        most = count(self._flag("--max_workers"), given.max_workers or default, 1)
        if len(self._values.problems) > before:
            return 0, 0, 1
        if least > most:
            self._wrong("--min_workers", f"is {least}, more than --max_workers, which is {most}")
        elif not least <= workers <= most:
            what = f"is {workers}, outside of --min_workers {least} and --max_workers {most}"
            self._wrong("--workers", what)
        return workers, least, most

    def _fixed(self, workers: int) -> tuple[int, int, int]:
        limits = (
            ("--min_workers", self._given.min_workers),
            ("--max_workers", self._given.max_workers),
        )
        for flag, value in limits:
            if value is not None:
                hint = "Kueue admits a cluster of a fixed size: say --workers alone"
                self._wrong(flag, "does not go together with --queue", hint)
        if workers < 1:
            self._wrong("--workers", "is 0; with --queue it has to be 1 or more")
        return workers, workers, workers

    def _check_accelerator(self, gpus: int) -> None:
        name = self._given.accelerator
        if name is None:
            return
        if not gpus:
            self._wrong("--accelerator", f"is {name}, but --gpu is 0", "say how many: --gpu 1")
        if self._cloud == GKE and name not in gke.ACCELERATORS:
            hint = did_you_mean(name, gke.ACCELERATORS)
            self._wrong("--accelerator", f"{name!r} is none of GKE's", hint)
        elif not name or not is_label_value(name):
            self._wrong("--accelerator", f"{name!r} is no value of a node's label")

    def _placement(self, gpus: int) -> Placement:
        given = self._given
        if given.is_spot and self._cloud != GKE:
            hint = "name your cloud's own: --node_selector KEY=VALUE --toleration KEY"
            self._wrong("--spot", f"is not known for --cloud {self._cloud}", hint)
        own = Placement(self._selector(), tuple(self._tolerations()))
        return place_workers(self._cloud, given.accelerator, gpus, given.is_spot, own)

    def _selector(self) -> dict[str, str]:
        found = {}
        for text in self._given.node_selector:
            key, equals, value = text.partition("=")
            if not (equals and is_label_key(key) and is_label_value(value)):
                self._wrong("--node_selector", f"is {text!r}; it has to be KEY=VALUE of a label")
            found[key] = value
        return found

    def _tolerations(self) -> list[dict[str, str]]:
        found = []
        for text in self._given.tolerations:
            try:
                toleration = parse_toleration(text)
            except ValueError as error:
                self._wrong("--toleration", f"is {text!r}: {error}")
                continue
            if not (
                is_label_key(toleration["key"]) and is_label_value(toleration.get("value", ""))
            ):
                self._wrong("--toleration", f"is {text!r}; it has to be KEY[=VALUE][:EFFECT]")
            found.append(toleration)
        return found

    def _wrong(self, flag: str, what: str, hint: str = "") -> None:
        self._values.problems.append(Problem(self._flag(flag), what, hint))

    def _flag(self, flag: str) -> str:
        return f"{flag} of group {self._given.name!r}"
