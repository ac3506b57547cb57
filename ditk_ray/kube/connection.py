"""Finding the cluster, from a kubeconfig or from inside it, and what this account may do there."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ditk_ray.config.options import KubeSettings
from ditk_ray.errors import (
    BadConfigError,
    KubeConflictError,
    KubeForbiddenError,
    KubeNotFoundError,
    Problem,
)
from ditk_ray.kube.http_client import Call, HttpClient
from ditk_ray.kube.objects import CONFIG_MAPS, DIJOBS, EVENTS, PODS, Objects, Piece, Resource
from ditk_ray.util.suggest import did_you_mean

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts a pod's token, its namespace and the cluster's certificate."""

DEFAULT_KUBECONFIG = Path("~/.kube/config")
PATIENCE = 10.0  # seconds for which a server that does not answer is asked again
_REVIEWS = Resource(
    "selfsubjectaccessreviews", "SelfSubjectAccessReview", "authorization.k8s.io/v1"
)


class Kube:
    """A cluster's API server and one namespace of it. For any number of threads.

    Nothing is sent before something is asked for.
    """

    def __init__(self, http: HttpClient, namespace: str) -> None:
        self.http = http
        self.host = http.host
        self.namespace = namespace
        self.dijobs = Objects(http, DIJOBS, namespace)
        self.pods = Objects(http, PODS, namespace)
        self.events = Objects(http, EVENTS, namespace)
        self.config_maps = Objects(http, CONFIG_MAPS, namespace)

    def objects(self, resource: Resource) -> Objects:
        return Objects(self.http, resource, self.namespace)

    def delete(self, piece: Piece) -> bool:
        """Delete this very object; return whether it was still there."""
        try:
            self.objects(piece.resource).delete(piece.name, piece.uid)
        except (KubeNotFoundError, KubeConflictError):
            return False  # it was done externally, and another may have its name by now
        return True

    def close(self) -> None:
        self.http.close()


def connect(settings: KubeSettings, patience: float = PATIENCE) -> Kube:
    """Return the cluster that `settings` and the surroundings name.

    That is the kubeconfig given, else $KUBECONFIG, else ~/.kube/config, else the cluster
    that this process runs in. The namespace is the one given, else the context's, else the
    service account's, else "default". A request is tried again for `patience` seconds.
    Raises BadConfigError when no cluster is named, or one that is not there.
    """
    from kubernetes.client.api_client import ApiClient  # slow to import
    from kubernetes.client.configuration import Configuration

    configuration = Configuration()
    if kubeconfig := _kubeconfig(settings):
        found = _load_file(configuration, kubeconfig, settings.context)
    else:
        found = _load_service_account(configuration, settings.context)
    configuration.retries = False  # HttpClient does that, and says in the end what was wrong
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = 32
    client = ApiClient(configuration)
    client.user_agent = "ditk-ray"
    return Kube(HttpClient(client, patience), settings.namespace or found or "default")


def settled(settings: KubeSettings) -> KubeSettings:
    """Return settings that mean the same cluster and namespace later, and from any folder.

    Whoever resumes a sweep may have chosen another context by then. What cannot be found is
    left as it is: `connect` says what is wrong with it.
    """
    try:
        kubeconfig = _kubeconfig(settings)
        if kubeconfig is None:
            return replace(settings, namespace=settings.namespace or _own_namespace())
        chosen = _context(kubeconfig, settings.context)
    except BadConfigError:
        return settings
    namespace = settings.namespace or (chosen.get("context") or {}).get("namespace")
    return KubeSettings(Path(kubeconfig), chosen["name"], namespace)


def _kubeconfig(settings: KubeSettings) -> str | None:
    named = settings.kubeconfig or os.environ.get("KUBECONFIG")
    if not named:
        default = DEFAULT_KUBECONFIG.expanduser()
        return str(default) if default.is_file() else None
    paths = [Path(path).expanduser().absolute() for path in str(named).split(os.pathsep) if path]
    if not any(path.is_file() for path in paths):
        hint = "" if settings.kubeconfig else "the environment variable KUBECONFIG names it"
        raise _bad(f"there is no file {named}", hint)
    return os.pathsep.join(map(str, paths))


def _load_file(configuration: Any, kubeconfig: str, context: str | None) -> str | None:
    from kubernetes.config import load_kube_config  # slow to import

    chosen = _context(kubeconfig, context)
    with _loading(kubeconfig):
        load_kube_config(kubeconfig, context, configuration, persist_config=False)
    return (chosen.get("context") or {}).get("namespace")


def _context(kubeconfig: str, name: str | None) -> dict[str, Any]:
    from kubernetes.config import list_kube_config_contexts  # slow to import

    with _loading(kubeconfig):
        contexts, current = list_kube_config_contexts(kubeconfig)
        by_name = {each["name"]: each for each in contexts}
    if name is not None and name not in by_name:
        raise _bad(f"no context is called {name!r}", did_you_mean(name, by_name))
    return dict(by_name[name] if name is not None else current)


def _load_service_account(configuration: Any, context: str | None) -> str | None:
    from kubernetes.config.incluster_config import InClusterConfigLoader  # slow to import

    if not os.environ.get("KUBERNETES_SERVICE_HOST"):
        hint = f"pass --kubeconfig FILE, set KUBECONFIG, or have {DEFAULT_KUBECONFIG}"
        raise _bad("no cluster is named", hint)
    if context is not None:
        raise _bad(f"no kubeconfig was found, so there is no context {context!r}")
    token, certificate = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    with _loading("this pod's service account"):
        # It reads the token again every minute: Kubernetes replaces it by a new one.
        InClusterConfigLoader(str(token), str(certificate)).load_and_set(configuration)
    return _own_namespace()


@contextlib.contextmanager
def _loading(what: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # a file that is not a kubeconfig fails in many ways
        text = " ".join(str(error).split())
        raise _bad(f"{what} cannot be used: {type(error).__name__}: {text}") from None


def _own_namespace() -> str | None:
    namespace = SERVICE_ACCOUNT / "namespace"
    return namespace.read_text().strip() if namespace.is_file() else None


def _bad(what: str, hint: str = "") -> BadConfigError:
    return BadConfigError(Problem("the Kubernetes cluster", what, hint))


@dataclass(frozen=True, order=True)
class Right:
    """What a Role allows: a verb on a resource (`pods/portforward`) of a group."""

    group: str
    resource: str
    verb: str


def server_version(kube: Kube) -> str:
    """Return which Kubernetes answers; raises a KubeError if none does."""
    answer = kube.http.ask(Call("GET", "/version", "version", name="version"))
    return str(answer.get("gitVersion", "of an unknown version"))


def served_resources(kube: Kube, api_version: str) -> set[str]:
    """Return the resources of a version of an API, by their plurals; none if it is not served."""
    try:
        answer = kube.http.ask(Call("GET", f"/apis/{api_version}", "apis", name=api_version))
    except KubeNotFoundError:
        return set()
    return {str(each["name"]) for each in answer.get("resources") or []}


def is_allowed(kube: Kube, right: Right) -> bool:
    resource, _, part = right.resource.partition("/")
    attributes = {
        "namespace": kube.namespace,
        "group": right.group,
        "resource": resource,
        "subresource": part,
        "verb": right.verb,
    }
    reviews = Objects(kube.http, _REVIEWS, "")
    review = reviews.create({"spec": {"resourceAttributes": attributes}}, is_repeatable=True)
    return bool(review.get("status", {}).get("allowed"))


def missing_rights(kube: Kube, rights: Iterable[Right]) -> list[Right]:
    """Return those of the rights that this account lacks; none if it may not even ask."""
    try:
        return [right for right in rights if not is_allowed(kube, right)]
    except KubeForbiddenError as error:
        if error.status == 403:
            return []
        raise
