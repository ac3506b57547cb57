"""Finding the cluster: from a kubeconfig, or from inside it by the pod's service account."""

from __future__ import annotations

import os
from dataclasses import dataclass
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
        if not settings.kubeconfig.expanduser().is_file():
            raise _bad(f"there is no file {settings.kubeconfig}")
        return str(settings.kubeconfig.expanduser())
    named = os.environ.get("KUBECONFIG")
    if named:
        if not any(Path(path).expanduser().is_file() for path in named.split(os.pathsep) if path):
            raise _bad(f"KUBECONFIG is {named}, and there is no such file")
        return named
    default = DEFAULT_KUBECONFIG.expanduser()
    return str(default) if default.is_file() else None


def _from_file(configuration: Any, kubeconfig: str, context: str | None) -> str | None:
    from kubernetes.config import ConfigException, list_kube_config_contexts, load_kube_config

    try:
        contexts, current = list_kube_config_contexts(kubeconfig)
        by_name = {each["name"]: each for each in contexts}
        if context is not None and context not in by_name:
            raise _bad(f"no context is called {context!r}", did_you_mean(context, by_name))
        load_kube_config(kubeconfig, context, configuration, persist_config=False)
    except ConfigException as error:
        raise _bad(" ".join(str(error).split())) from None
    except BadConfigError:
        raise
    except Exception as error:  # a file that is no kubeconfig fails in many ways
        raise _bad(f"{kubeconfig} cannot be read: {type(error).__name__}: {error}") from None
    chosen = by_name[context] if context is not None else current
    return (chosen.get("context") or {}).get("namespace")


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
    namespace = SERVICE_ACCOUNT / "namespace"
    return namespace.read_text().strip() if namespace.is_file() else None


def _bad(what: str, hint: str = "") -> BadConfigError:
    return BadConfigError(Problem("the Kubernetes cluster", what, hint))
