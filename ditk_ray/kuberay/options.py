"""What a Ray cluster on Kubernetes is to be like: one model that is checked as a whole.

The fields are the flags of `ditk-ray cluster launch` and `run`, and manifests are made of them.
Kubernetes does not check the pods inside a RayCluster, so their names and labels are checked here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any, Literal, Self, TypeVar
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from ditk_ray.config.checked import Written, problems_of
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.submit.clusters import is_address
from ditk_ray.util.units import parse_bytes, parse_seconds

_MOST = 2**31 - 1  # KubeRay's numbers are of 32 bits
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*"
_LABEL_KEY = rf"(?:(?=[^/]{{1,253}}/){_DOMAIN}/)?{_NAME}"
_NODE_LABEL = re.compile(rf"({_LABEL_KEY})=((?:{_NAME})?)")
_TOLERATION = re.compile(
    rf"(?P<key>{_LABEL_KEY})(=(?P<value>(?:{_NAME})?))?"
    r"(:(?P<effect>NoSchedule|PreferNoSchedule|NoExecute))?"
)


def _text_like(pattern: str, wanted: str, most: int = 253) -> AfterValidator:
    def check(text: str) -> str:
        if not re.fullmatch(pattern, text, re.ASCII):
            raise ValueError(f"is {text!r}; it has to be {wanted}")
        if len(text) > most:
            raise ValueError(f"is {text!r}, which has {len(text)} characters; {most} are allowed")
        return text

    return AfterValidator(check)


def _cluster_name(most: int) -> AfterValidator:
    return _text_like(r"[a-z]([-a-z0-9]*[a-z0-9])?", "a small letter, then a-z, 0-9 and '-'", most)


def _node_label(text: Any) -> tuple[str, str]:
    found = _NODE_LABEL.fullmatch(str(text))
    if found is None:
        raise ValueError(f"is {text!r}; it has to be KEY=VALUE of a label")
    return found[1], found[2]


def _toleration(text: Any) -> dict[str, str]:
    found = _TOLERATION.fullmatch(str(text))
    if found is None:
        effects = "NoSchedule, PreferNoSchedule or NoExecute"
        raise ValueError(f"is {text!r}; it has to be KEY[=VALUE][:EFFECT], with EFFECT {effects}")
    operator = "Exists" if found["value"] is None else "Equal"
    given = {"key": found["key"], "operator": operator, **found.groupdict()}
    return {key: value for key, value in given.items() if value is not None}


def _ray_version(given: str) -> str:
    text = given or version("ray")
    found = re.fullmatch(r"(\d+)\.(\d+)(\.\w+)*", text, re.ASCII)
    if found is None or (int(found[1]), int(found[2])) < (2, 52):
        why = "older ones have no tokens: anyone who reaches the dashboard could run code"
        raise ValueError(f"is {text!r}; it has to be 2.52.0 or newer: {why}")
    return text


def _mlflow_uri(text: str) -> str:
    if not is_address(text):
        raise ValueError("is not an address that the pods could reach (http or https)")
    if "@" in urlsplit(text).netloc:
        hint = "`ditk-ray submit --env MLFLOW_TRACKING_PASSWORD` gives it to jobs"
        raise ValueError(f"has a user or a password, which the manifests would show; {hint}")
    return text


ObjectName = Annotated[str, _text_like(_DOMAIN, "a name of an object on Kubernetes")]
LabelValue = Annotated[
    str, _text_like(_NAME, "a value of a label, 63 letters, digits, - _ . at most")
]
Count = Annotated[int, Field(ge=0, le=_MOST)]
Positive = Annotated[int, Field(ge=1, le=_MOST)]
Memory = Annotated[int, BeforeValidator(parse_bytes), Field(ge=2**20)]
NodeLabel = Annotated[tuple[str, str], BeforeValidator(_node_label)]
Toleration = Annotated[dict[str, str], BeforeValidator(_toleration)]
RayVersion = Annotated[str, AfterValidator(_ray_version)]
MLflowUri = Annotated[str, AfterValidator(_mlflow_uri)]
Deadline = Annotated[float, BeforeValidator(parse_seconds), Field(ge=1, le=_MOST)]
CodeUri = Annotated[
    str, _text_like(r"(https|s3|gs)://\S+", "the https, s3 or gs address of a zip file", 4096)
]
Image = Annotated[str, _text_like(r"[\w./:@-]+", "an image, such as HOST/NAME:TAG", 4096)]


GPU = "nvidia.com/gpu"
GPU_PRODUCT = "nvidia.com/gpu.product"  # by NVIDIA's feature discovery, on any cloud
GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_SPOT = "cloud.google.com/gke-spot"
RESUMES = "--resume_existing"
# Of the flags of `tune`: where a sweep runs, and what only shows something.
_REFUSED = {"--run_mode", "--ray_address", "--storage_path"}
_REFUSED |= {"--list", "--list_searchers", "--list_schedulers", "--plan"}


def _flag(help: str, default: Any = None, **settings: Any) -> Any:
    return Field(default, description=help, json_schema_extra=settings)


_rest = partial(_flag, group="the rest of the cluster")
_results = partial(_flag, group="results and records")
_job = partial(_flag, group="the job")


class Group(Written):
    """Workers that are alike; `memory` is in bytes."""

    name: Annotated[str, _cluster_name(63)] = _flag(
        "begin a group", "workers", flags=["--group"], metavar="NAME"
    )
    workers: Count | None = _flag("initial number (default: 1)", metavar="N")
    min_workers: Count | None = _flag("minimum (default: 0)", metavar="N")
    max_workers: Positive | None = _flag("maximum (default: --workers)", metavar="N")
    cpu: Positive = _flag("CPUs of each (default: 4)", 4, metavar="N")
    memory: Memory = _flag("memory of each (default: 16G)", 16 * 2**30, metavar="SIZE")
    gpu: Count = _flag("GPUs of each (default: 0)", 0, metavar="N")
    accelerator: LabelValue | None = _flag("which GPU, such as nvidia-l4", metavar="NAME")
    spot: bool = _flag("on spot nodes, which are cheap and may be taken away", False)
    node_selector: tuple[NodeLabel, ...] = _flag(
        "a label that its nodes have (repeatable)", (), metavar="KEY=VALUE"
    )
    tolerations: tuple[Toleration, ...] = _flag(
        "a taint that it tolerates, KEY[=VALUE][:EFFECT] (repeatable)",
        (),
        flags=["--toleration"],
        metavar="TAINT",
    )

    def sizes(self, is_fixed: bool) -> tuple[int, int, int]:
        """Return how many workers there are at first, at least and at most."""
        least = self.min_workers or 0
        workers = next(n for n in (self.workers, self.min_workers, 1) if n is not None)
        if is_fixed:
            return workers, workers, workers
        return workers, least, self.max_workers or max(workers, least, 1)

    def problems(self, cloud: str, queue: str | None) -> list[Problem]:
        """Return what does not go together: in itself, on that cloud, or with Kueue."""
        wrong: dict[str, str] = {}
        if self.name == "head":
            wrong["--group"] = "is what KubeRay calls the group of the head"
        workers, least, most = self.sizes(is_fixed=False)
        if not least <= workers <= most:
            limits = f"--min_workers {least} and --max_workers {most}"
            wrong["--workers"] = f"is {workers}, outside of {limits}"
        if self.accelerator and not self.gpu:
            wrong["--accelerator"] = f"is {self.accelerator}, but --gpu is 0: say how many"
        if self.spot and cloud != "gke":
            hint = "name your cloud's own: --node_selector KEY=VALUE --toleration KEY"
            wrong["--spot"] = f"is not known for --cloud {cloud}; {hint}"
        if queue is not None and (self.min_workers, self.max_workers) != (None, None):
            wrong["--workers"] = "Kueue admits a cluster of a fixed size: say --workers alone"
        elif queue is not None and not workers:
            wrong["--workers"] = "is 0; with --queue it has to be 1 or more"
        place = f"of group {self.name!r}"
        return [Problem(f"{flag} {place}", what) for flag, what in wrong.items()]

    def placement(self, cloud: str) -> dict[str, Any]:
        """Return the fields of a pod that say on which nodes it may run; the user's own win."""
        selector: dict[str, str] = {}
        tolerations: list[dict[str, str]] = []
        if self.accelerator:
            selector[GKE_ACCELERATOR if cloud == "gke" else GPU_PRODUCT] = self.accelerator
        if self.gpu:
            tolerations.append({"key": GPU, "operator": "Exists", "effect": "NoSchedule"})
        if self.spot:
            selector[GKE_SPOT] = "true"
            spot = {"key": GKE_SPOT, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
            tolerations.append(spot)
        tolerations += [each for each in self.tolerations if each not in tolerations]
        placed = {"nodeSelector": selector | dict(self.node_selector), "tolerations": tolerations}
        return {key: value for key, value in placed.items() if value}


class Launch(Written):
    """One cluster.

    `mlflow_uri` is an existing server. With neither that nor a server of its own
    sweeps keep a store among the results.
    """

    model_config = ConfigDict(validate_default=True)

    name: Annotated[str, _cluster_name(53)] = _flag("name of the cluster", ..., metavar="NAME")
    image: Image = _flag("the image of all its pods", ..., metavar="IMAGE")
    namespace: ObjectName = "default"
    groups: tuple[Group, ...] = (Group(),)
    cloud: Literal["gke", "generic"] = _rest(
        "how nodes are labelled: as GKE does it, or by NVIDIA's feature discovery and your own "
        "--node_selector (default: %(default)s)",
        "generic",
    )
    head_cpu: Positive = _rest("(default: %(default)s)", 2, metavar="N")
    head_memory: Memory = _rest("(default: 8G)", 8 * 2**30, metavar="SIZE")
    ray_version: RayVersion = _rest(
        "Ray version in the image (default: that of this machine)", "", metavar="X.Y.Z"
    )
    queue: LabelValue | None = _rest(
        "a LocalQueue of Kueue, which decides when it starts; the number of workers is fixed then",
        metavar="NAME",
    )
    image_pull_secret: ObjectName | None = _rest("a Secret to pull the image with", metavar="NAME")
    storage_class: ObjectName | None = _results(
        "for the results, with ReadWriteMany (default: the cluster's default; GKE: standard-rwx)",
        metavar="NAME",
    )
    results_size: Memory | None = _results(
        "size of their claim (default: 100G; GKE: 1T)", metavar="SIZE"
    )
    results_claim: ObjectName | None = _results("existing claim for the results", metavar="NAME")
    no_mlflow: bool = _results("no MLflow server: sweeps keep a store among the results", False)
    mlflow_uri: MLflowUri | None = _results(
        "record on this server instead of one of its own", metavar="URI"
    )

    @property
    def has_mlflow(self) -> bool:
        return not self.no_mlflow and self.mlflow_uri is None

    @property
    def tracking_uri(self) -> str | None:
        return f"http://{self.name}-mlflow:5000" if self.has_mlflow else self.mlflow_uri

    @property
    def claim_name(self) -> str:
        return self.results_claim or f"{self.name}-results"

    @model_validator(mode="after")
    def _check(self) -> Self:
        # Not a ValueError, which pydantic would turn into one text: these have places.
        if problems := self.problems():
            raise BadConfigError(problems)
        return self

    def problems(self) -> list[Problem]:
        problems = [
            each for group in self.groups for each in group.problems(self.cloud, self.queue)
        ]
        names = Counter(group.name for group in self.groups)
        twice = [name for name in names if names[name] > 1]
        problems += [Problem(f"--group {name}", "is given more than once") for name in twice]
        if self.results_claim is not None and (self.storage_class or self.results_size):
            what = "are for a new claim and cannot be combined with --results_claim"
            problems.append(Problem("--storage_class and --results_size", what))
        if self.mlflow_uri is not None and self.no_mlflow:
            problems.append(Problem("--mlflow_uri", "cannot be combined with --no_mlflow"))
        return problems


class Job(Launch):
    """A sweep that runs as a RayJob, with a cluster of its own."""

    # KubeRay makes longer names of it than of a cluster's.
    name: Annotated[str, _cluster_name(47)] = _flag("of the job", ..., metavar="NAME")
    retries: Count = _job("(default: %(default)s)", 3, metavar="N")
    deadline: Deadline | None = _job("end it after this time, such as 24h", metavar="TIME")
    working_dir: CodeUri | None = _job("a zip file with the code", metavar="URI")
    command: tuple[str, ...] = _flag("the sweep", (), positional=True, metavar="tune ...")

    def problems(self) -> list[Problem]:
        problems = super().problems()
        refused = [flag for flag in self._flags if flag in _REFUSED]
        what = "does not go with a sweep in a cluster of its own"
        problems += [Problem(flag, what) for flag in refused]
        if self.command[:1] != ("tune",):
            hint = "such as: ditk-ray cluster run ... -- tune --cfg_class CartpoleDQNJobCfg"
            problems.append(Problem("the words after --", "have to begin with tune", hint))
        return problems

    @property
    def _flags(self) -> list[str]:
        given = [word[2:].partition("=")[0] for word in self.command if word.startswith("--")]
        return [f"--{name.replace('-', '_')}" for name in given]

    @property
    def entrypoint(self) -> list[str]:
        """The words that run it: named as the job if it has no name, and resumed if it exists."""
        named = [] if "--name" in self._flags else ["--name", self.name]
        resumed = [] if RESUMES in self._flags else [RESUMES]
        return ["ditk-ray", *self.command, *named, *resumed]


Model = TypeVar("Model", bound=Launch)


def checked(model: type[Model], values: Mapping[str, Any]) -> Model:
    """Return the model of what a user gives; raises BadConfigError with all that is wrong."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        place = partial(_place, values)
        raise BadConfigError(problems_of(error, place, Job.model_fields, _HINTS)) from None


def checked_launches(values: Mapping[str, Any], count: int) -> list[Launch]:
    """Return that many identical clusters, NAME-0 and so on; a single one has the name itself."""
    if count == 1 or not values.get("name"):
        return [checked(Launch, values)]
    return [
        checked(Launch, {**values, "name": f"{values['name']}-{number}"}) for number in range(count)
    ]


_HINTS = {
    "--name": "name the cluster, such as --name rl",
    "--image": "build one from cluster_configs/Dockerfile, and push it where the nodes can pull it",
}


def _place(values: Mapping[str, Any], parts: Sequence[Any]) -> str:
    if parts[0] != "groups":
        return f"--{parts[0]}"
    _, number, field, *_ = parts
    flag = {"name": "--group", "tolerations": "--toleration"}.get(field, f"--{field}")
    return f"{flag} of group {values['groups'][number].get('name', 'workers')!r}"
