"""Finding the cluster: from a kubeconfig, or from inside it by the pod's service account."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.kube.objects import Objects
from ditk_ray.kube.resources import CONFIG_MAPS, DIJOBS, EVENTS, PODS, Resource
from ditk_ray.kube.wire import Wire

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts a pod's token, its namespace and the cluster's certificate."""

DEFAULT_KUBECONFIG = Path("~/.kube/config")
PATIENCE = 10.0
"""For so many seconds a command goes on asking a server that does not answer."""

_CONNECTIONS = 32


@dataclass(frozen=True)
class KubeSettings:
    """What a user says about the cluster. What is None is found as kubectl finds it."""

    kubeconfig: Path | None = None
    context: str | None = None
    namespace: str | None = None


class Kube:
    """A cluster's API server and one namespace of it. For any number of threads.

    Nothing is sent before something is asked for.
    """

    def __init__(self, wire: Wire, namespace: str) -> None:
        self.wire = wire
        self.namespace = namespace
        self.dijobs = Objects(wire, DIJOBS, namespace)
        self.pods = Objects(wire, PODS, namespace)
        self.events = Objects(wire, EVENTS, namespace)
        self.config_maps = Objects(wire, CONFIG_MAPS, namespace)

    def objects(self, resource: Resource) -> Objects:
        """Return the objects of any other kind."""
        return Objects(self.wire, resource, self.namespace)

    @property
    def host(self) -> str:
        """The address of the API server."""
        return self.wire.host

    def close(self) -> None:
        """Let go of the connections."""
        self.wire.close()


def connect(settings: KubeSettings, patience: float = PATIENCE) -> Kube:
    """Return the cluster that `settings` and the surroundings name.

    That is the kubeconfig given, else $KUBECONFIG, else ~/.kube/config, else the cluster
    that this process runs in. The namespace is the one given, else the context's, else the
    service account's, else "default". A request is tried again for `patience` seconds.
    Raises BadConfigError when no cluster is named, or one that is not there.
    """
    from kubernetes.client.api_client import ApiClient
    from kubernetes.client.configuration import Configuration

    configuration = Configuration()
    found = _configure(configuration, settings)
    configuration.retries = False  # Wire does that, and says in the end what was wrong
    configuration.keep_alive = True
    configuration.connection_pool_maxsize = _CONNECTIONS
    client = ApiClient(configuration)
    client.user_agent = "ditk-ray"
    return Kube(Wire(client, patience), settings.namespace or found or "default")


def settled(settings: KubeSettings) -> KubeSettings:
    """Return settings that mean the same cluster and namespace later, and from any folder.

    Whoever goes on with a sweep may have chosen another context by then. What cannot be found
    is left as it is: `connect` says what is wrong with it.
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


def _configure(configuration: Any, settings: KubeSettings) -> str | None:
    """Fill in the address and the credentials; return the namespace that goes with them."""
    kubeconfig = _kubeconfig(settings)
    if kubeconfig:
        return _from_file(configuration, kubeconfig, settings.context)
    if os.environ.get("KUBERNETES_SERVICE_HOST"):
        return _from_inside(configuration, settings)
    raise _bad(
        "no cluster is named",
        f"pass --kubeconfig FILE, set KUBECONFIG, or have {DEFAULT_KUBECONFIG}",
    )


def _kubeconfig(settings: KubeSettings) -> str | None:
    """Return the file, or the files with `:` between them, as KUBECONFIG may have it."""
    if settings.kubeconfig:
        if found := _files(str(settings.kubeconfig)):
            return found
        raise _bad(f"there is no file {settings.kubeconfig}")
    named = os.environ.get("KUBECONFIG")
    if named:
        if found := _files(named):
            return found
        raise _bad(f"KUBECONFIG is {named}, and there is no such file")
    default = DEFAULT_KUBECONFIG.expanduser()
    return str(default) if default.is_file() else None


def _files(named: str) -> str | None:
    """Return the files, whole and with `:` between them; None if none of them is there."""
    paths = [Path(path).expanduser().absolute() for path in named.split(os.pathsep) if path]
    return os.pathsep.join(map(str, paths)) if any(path.is_file() for path in paths) else None


def _from_file(configuration: Any, kubeconfig: str, context: str | None) -> str | None:
    from kubernetes.config import load_kube_config

    chosen = _context(kubeconfig, context)
    with _kubeconfig_errors(kubeconfig):
        load_kube_config(kubeconfig, context, configuration, persist_config=False)
    return (chosen.get("context") or {}).get("namespace")


def _context(kubeconfig: str, name: str | None) -> dict[str, Any]:
    """Return the context of this name, or else the current one."""
    from kubernetes.config import list_kube_config_contexts

    with _kubeconfig_errors(kubeconfig):
        contexts, current = list_kube_config_contexts(kubeconfig)
        by_name = {each["name"]: each for each in contexts}
    if name is not None and name not in by_name:
        raise _bad(f"no context is called {name!r}", did_you_mean(name, by_name))
    return dict(by_name[name] if name is not None else current)


@contextlib.contextmanager
def _kubeconfig_errors(kubeconfig: str) -> Iterator[None]:
    from kubernetes.config import ConfigException

    try:
        yield
    except ConfigException as error:
        raise _bad(" ".join(str(error).split())) from None
    except Exception as error:  # a file that is no kubeconfig fails in many ways
        raise _bad(f"{kubeconfig} cannot be read: {type(error).__name__}: {error}") from None


def _from_inside(configuration: Any, settings: KubeSettings) -> str | None:
    from kubernetes.config import ConfigException
    from kubernetes.config.incluster_config import InClusterConfigLoader

    if settings.context is not None:
        raise _bad(f"no kubeconfig was found, so there is no context {settings.context!r}")
    token, certificate = SERVICE_ACCOUNT / "token", SERVICE_ACCOUNT / "ca.crt"
    try:
        # It reads the token again every minute: Kubernetes replaces it by a new one.
        InClusterConfigLoader(str(token), str(certificate)).load_and_set(configuration)
    except ConfigException as error:
        raise _bad(f"this pod's service account cannot be used: {error}") from None
    return _own_namespace()


def _own_namespace() -> str | None:
    """Return the namespace of the pod that this process runs in, if it does."""
    namespace = SERVICE_ACCOUNT / "namespace"
    return namespace.read_text().strip() if namespace.is_file() else None


def _bad(what: str, hint: str = "") -> BadConfigError:
    return BadConfigError(Problem("the Kubernetes cluster", what, hint))
