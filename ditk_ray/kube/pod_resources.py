"""A trial's resources as a container asks for them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ditk_ray.config.resources import TrialResources
from ditk_ray.errors import Problem
from ditk_ray.kube.pod_parts import each_container

USUAL_GPU = "nvidia.com/gpu"
THREAD_VARIABLES = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "NUMEXPR"))
_UNITS = (("Gi", 1024**3), ("Mi", 1024**2), ("Ki", 1024))
_DIVISIBLE = ("cpu", "memory", "ephemeral-storage")
"""What may be given in parts; everything else is counted."""


def gpu_name(container: Mapping[str, Any], spec: Mapping[str, Any]) -> str:
    """Return what the template calls a GPU: this container, else any of the job's."""
    for item in (container, *(other for _, _, other in each_container(spec))):
        for kind in ("requests", "limits"):
            for name in (item.get("resources") or {}).get(kind) or {}:
                if "gpu" in str(name).lower():
                    return str(name)
    return USUAL_GPU


def asks_for_gpu(spec: Mapping[str, Any], resources: Mapping[str, TrialResources]) -> bool:
    """Say whether a container of a job asks for a GPU, by itself or by what it is given."""
    asked = {
        str(name): str(amount)
        for _, _, container in each_container(spec)
        for kind in ("requests", "limits")
        for name, amount in ((container.get("resources") or {}).get(kind) or {}).items()
    }
    for given in resources.values():
        asked |= {USUAL_GPU: f"{given.gpu:g}"} if given.gpu else {}
        asked |= {name: f"{amount:g}" for name, amount in given.custom.items()}
    return any("gpu" in name.lower() and amount != "0" for name, amount in asked.items())


def quantities(resources: TrialResources, gpu: str) -> dict[str, str]:
    """Return Kubernetes' names and amounts; what is zero or None was not given."""
    amounts = {"cpu": resources.cpu, gpu: resources.gpu, **resources.custom}
    found = {name: _amount(value) for name, value in amounts.items() if value}
    return found | ({"memory": _bytes(resources.memory)} if resources.memory else {})


def resource_problems(resources: TrialResources, gpu: str, where: str) -> Iterator[Problem]:
    """Yield what Kubernetes cannot give."""
    for name, value in {gpu: resources.gpu, **resources.custom}.items():
        if name not in _DIVISIBLE and value != int(value):
            what = f"asks for {value:g} of {name}, and Kubernetes gives whole ones only"
            yield Problem(f"{where}.resources", what, "ask for a whole number, or for none")


def set_resources(container: dict[str, Any], amounts: Mapping[str, str]) -> None:
    """Have a container ask for these amounts and be kept to them; others of its own stay."""
    resources = dict(container.get("resources") or {})
    for kind in ("requests", "limits"):
        resources[kind] = {**(resources.get(kind) or {}), **amounts}
    if amounts:
        container["resources"] = resources


def threads_of(container: Mapping[str, Any]) -> int | None:
    """Return how many numeric threads fit the CPUs of a container; None if it names none."""
    resources = container.get("resources") or {}
    for kind in ("limits", "requests"):
        cpu = (resources.get(kind) or {}).get("cpu")
        if cpu is not None:
            return _whole_cpus(str(cpu))
    return None


def _whole_cpus(text: str) -> int | None:
    try:
        cpus = float(text[:-1]) / 1000 if text.endswith("m") else float(text)
    except ValueError:
        return None
    return max(1, int(cpus))


def _amount(value: float) -> str:
    return str(int(value)) if value == int(value) else f"{round(value * 1000)}m"


def _bytes(amount: int) -> str:
    for unit, size in _UNITS:
        if amount % size == 0:
            return f"{amount // size}{unit}"
    return str(amount)
