"""A real Kubernetes API server with its etcd, and the controllers that clean up after owners."""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import urllib3
import yaml

from tests.kube.api_client import ApiClient, ApiError
from tests.kube.certificates import Authority
from tests.lifeline import Lifeline
from tests.processes import PATIENCE, free_port, wait_until

ADMIN = "admin"
_PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")
# Deletes what lost its owner, empties namespaces, counts what quotas limit, lets go of claims
# that no pod uses. No other controller runs: nodes, pods and DIJobs are left to whoever plays
# their part.
_CONTROLLERS = "garbagecollector,namespace,pvc-protection,resourcequota"
_MASTERS = ("system:masters",)
_DEFINITIONS = "apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def kube_assets() -> Path:
    """Return the folder of the programs; without one, skip, unless that is forbidden."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folders = [cache / "ditk_ray" / "kube-assets"]
    if named := os.environ.get("KUBEBUILDER_ASSETS"):
        folders.insert(0, Path(named))
    for folder in folders:
        if all(os.access(folder / program, os.X_OK) for program in _PROGRAMS):
            return folder
    reason = f"no Kubernetes API server here ({', '.join(_PROGRAMS)}): `make kube-assets` makes one"
    if os.environ.get("DITK_RAY_REQUIRE_KUBE") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


@dataclass(frozen=True)
class SeenRequest:
    """A request as the API server's audit log has it."""

    user: str
    verb: str
    resource: str
    """Plural, with the subresource: `pods/log`."""
    namespace: str
    name: str
    code: int
    is_dry_run: bool
    at: float
    """When the API server received it, as `time.time()` counts."""


class ApiServer:
    """Keeps its data, its ports and its users' files over a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._assets = kube_assets()
        self._lifeline = Lifeline()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._made: dict[str, Any] = {}
        self._port = free_port()
        self._etcd_port = free_port()
        self.authority = Authority(folder)
        self.url = f"https://127.0.0.1:{self._port}"
        self.admin = self.client(ADMIN, _MASTERS)

    def start(self) -> None:
        """Start what does not run, and wait until it answers."""
        try:
            self._start_etcd()
            self._start_api_server()
            self._install_dijobs()
            self._start_controllers()
        except BaseException:
            self._end_all()  # the lifeline stays: a later test may start it again
            raise

    def restart(self) -> None:
        """Kill the API server and start it again: all connections are cut, its caches are new.

        A watch that goes on from a version of before is answered 410 Gone.
        """
        self.kill()
        self.start()

    def kill(self) -> None:
        """Kill the API server at once; `start` brings it back. Etcd and the rest stay."""
        self._end("kube-apiserver")

    def stop(self) -> None:
        """End everything, for good."""
        self._end_all()
        self._lifeline.close()

    def compact(self) -> None:
        """Have etcd forget all history.

        The API server still answers watches from its own cache: with a `restart` after this,
        old versions are gone for good.
        """
        asked = {"key": "AA==", "limit": 1, "keys_only": True}
        revision = self._etcd("kv/range", asked)["header"]["revision"]
        self._etcd("kv/compaction", {"revision": revision, "physical": True})

    @contextlib.contextmanager
    def without_dijobs(self) -> Iterator[None]:
        """Not know DIJobs meanwhile, as a server that has only just started; those there stay."""
        self._serve_dijobs(False)
        try:
            wait_until(lambda: not self._knows_dijobs(), 30, "the API server to forget DIJobs")
            yield
        finally:
            self._serve_dijobs(True)
            wait_until(self._knows_dijobs, 30, "the API server to know DIJobs")

    def client(self, user: str, groups: tuple[str, ...] = ()) -> ApiClient:
        """Return a plain client for a user, who exists by being named."""
        files = self.authority.user(user, groups)
        return ApiClient(self.url, self.authority.certificate, files)

    def kubeconfig(self, user: str = ADMIN, namespace: str = "default") -> Path:
        """Write a kubeconfig for a user: `admin` may do everything, others what RBAC grants."""
        files = self.authority.user(user, _MASTERS if user == ADMIN else ())
        credentials = {"client-certificate": str(files.certificate), "client-key": str(files.key)}
        return self._write_kubeconfig(user, namespace, credentials)

    def service_account(self, namespace: str, name: str) -> str:
        """Make a service account, if there is none, and return a token for it.

        RBAC knows it as `system:serviceaccount:<namespace>:<name>`.
        """
        path = f"api/v1/namespaces/{namespace}/serviceaccounts"
        try:
            self.admin.create(path, {"metadata": {"name": name}})
        except ApiError as error:
            if error.code != 409:
                raise
        asked = {"spec": {"expirationSeconds": 86400}}
        return str(self.admin.create(f"{path}/{name}/token", asked)["status"]["token"])

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Write a kubeconfig with a service account's token."""
        token = self.service_account(namespace, name)
        return self._write_kubeconfig(f"{namespace}-{name}", namespace, {"token": token})

    def provide_namespace(self, name: str) -> None:
        """Have a namespace of this name, which several modules may want."""
        try:
            self.admin.create("api/v1/namespaces", {"metadata": {"name": name}})
        except ApiError as error:
            if error.code != 409:
                raise

    def grant(self, namespace: str, user: str, rules: list[dict[str, Any]]) -> None:
        """Give a user a Role in a namespace; what it held there by this before is replaced."""
        path = f"apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
        name = user.replace(":", "-")
        role = {"metadata": {"name": name}, "rules": rules}
        binding = {
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
        }
        for kind, body in (("roles", role), ("rolebindings", binding)):
            try:
                self.admin.create(f"{path}/{kind}", body)
            except ApiError as error:
                if error.code != 409:
                    raise
                self.admin.replace(f"{path}/{kind}/{name}", body)

    def requests(self, user: str | None = None) -> list[SeenRequest]:
        """Return the requests that were made so far, or a user's; a watch counts when it begins."""
        found: dict[str, SeenRequest] = {}
        for event in self._audited():
            # Who could not be told while the server started has no name.
            if user in (None, event["user"].get("username")):
                found.setdefault(event["auditID"], _seen(event))
        return [request for request in found.values() if request.resource]

    def request_counts(self, user: str | None = None) -> Counter[tuple[str, str]]:
        """Count requests by (verb, resource), as in `("get", "pods/log")`."""
        return Counter((request.verb, request.resource) for request in self.requests(user))

    def _audited(self) -> Iterator[dict[str, Any]]:
        with (self._folder / "audit.log").open() as log:
            for line in log:
                # The last line may not be written to its end.
                if line.endswith("\n"):
                    yield json.loads(line)

    def _start_etcd(self) -> None:
        here, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        self._run(
            "etcd",
            f"--data-dir={self._folder / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={here}",
            f"--advertise-client-urls={here}",
            f"--listen-peer-urls={peer}",
            "--log-level=error",
        )

    def _start_api_server(self) -> None:
        server = self._once("apiserver", self.authority.server)
        tokens = self._once("service-accounts", self.authority.key_pair)
        kubelet = self._once("kubelet-client", self.authority.user)
        policy = self._folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(_AUDIT_POLICY))
        self._run(
            "kube-apiserver",
            f"--etcd-servers=http://127.0.0.1:{self._etcd_port}",
            "--bind-address=127.0.0.1",
            f"--secure-port={self._port}",
            f"--tls-cert-file={server.certificate}",
            f"--tls-private-key-file={server.key}",
            f"--client-ca-file={self.authority.certificate}",
            "--authorization-mode=RBAC",
            "--anonymous-auth=false",
            f"--service-account-issuer={self.url}",
            f"--service-account-key-file={tokens.certificate}",
            f"--service-account-signing-key-file={tokens.key}",
            "--service-cluster-ip-range=10.0.0.0/16",
            "--disable-admission-plugins=ServiceAccount",
            "--kubelet-preferred-address-types=InternalIP",
            f"--kubelet-certificate-authority={self.authority.certificate}",
            f"--kubelet-client-certificate={kubelet.certificate}",
            f"--kubelet-client-key={kubelet.key}",
            f"--audit-policy-file={policy}",
            f"--audit-log-path={self._folder / 'audit.log'}",
            "--v=1",
        )
        wait_until(self._ready, 60, "the API server to be ready")

    def _start_controllers(self) -> None:
        self._run(
            "kube-controller-manager",
            f"--kubeconfig={self._once('controllers', self._controllers_kubeconfig)}",
            f"--controllers={_CONTROLLERS}",
            "--leader-elect=false",
            "--port=0",
            "--secure-port=0",
            "--kube-api-qps=500",
            "--kube-api-burst=1000",
            "--v=1",
        )

    def _controllers_kubeconfig(self, name: str) -> Path:
        files = self.authority.user(name, _MASTERS)
        credentials = {"client-certificate": str(files.certificate), "client-key": str(files.key)}
        return self._write_kubeconfig(name, "default", credentials)

    def _install_dijobs(self) -> None:
        if self._knows_dijobs():
            return
        try:
            self.admin.create(_DEFINITIONS, _dijob_definition())
        except ApiError as error:
            if error.code != 409:
                raise
        wait_until(self._knows_dijobs, 30, "the API server to know DIJobs")

    def _serve_dijobs(self, is_served: bool) -> None:
        path = f"{_DEFINITIONS}/dijobs.diengine.opendilab.org"
        versions = self.admin.get(path)["spec"]["versions"]
        for version in versions:
            version["served"] = is_served
        self.admin.patch(path, {"spec": {"versions": versions}})

    def _knows_dijobs(self) -> bool:
        try:
            self.admin.get("apis/diengine.opendilab.org/v2alpha1/dijobs", limit="1")
        except ApiError:
            return False
        return True

    def _ready(self) -> bool:
        if self._processes["kube-apiserver"].poll() is not None:
            log = (self._folder / "kube-apiserver.log").read_text()
            pytest.fail(f"the API server ended at once:\n{log[-2000:]}")
        try:
            return self.admin.text("readyz") == "ok"
        except (ApiError, urllib3.exceptions.HTTPError):
            return False

    def _etcd(self, method: str, asked: dict[str, Any]) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self._etcd_port}/v3/{method}"
        answer = urllib3.request("POST", url, body=json.dumps(asked), timeout=30 * PATIENCE)
        assert answer.status == 200, answer.data
        return dict(answer.json())

    def _once(self, name: str, make: Any) -> Any:
        """Make something at the first start, and take it again at the next."""
        if name not in self._made:
            self._made[name] = make(name)
        return self._made[name]

    def _write_kubeconfig(self, user: str, namespace: str, credentials: dict[str, str]) -> Path:
        file = self._folder / f"{user.replace(':', '-')}-{namespace}.kubeconfig"
        cluster = {"server": self.url, "certificate-authority": str(self.authority.certificate)}
        context = {"cluster": "tests", "user": user, "namespace": namespace}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": user, "user": credentials}],
            "contexts": [{"name": "tests", "context": context}],
        }
        file.write_text(yaml.safe_dump(config))
        return file

    def _run(self, program: str, *arguments: str) -> None:
        running = self._processes.get(program)
        if running is not None and running.poll() is None:
            return
        with (self._folder / f"{program}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(self._assets / program), *arguments],
                cwd=self._folder,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._processes[program] = process
        self._lifeline.hold(process.pid)

    def _end_all(self) -> None:
        for name in list(self._processes):
            self._end(name)

    def _end(self, program: str) -> None:
        process = self._processes.pop(program, None)
        if process is not None:
            process.kill()
            process.wait(20 * PATIENCE)
            self._lifeline.release(process.pid)


# Who asked for what; the controllers' and the server's own requests are nobody's business.
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "None", "users": ["system:apiserver", "controllers"]},
        {"level": "Metadata"},
    ],
}


@functools.cache
def _dijob_definition() -> dict[str, Any]:
    """Read the definition once: it is large, and every start asks for it."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return dict(yaml.load(_crd_file().read_text(), loader))


def _crd_file() -> Path:
    if folder := os.environ.get("DITK_RAY_CRDS"):
        return Path(folder) / "diengine.opendilab.org_dijobs.yaml"
    return Path(__file__).with_name("dijob_crd.yaml")


def _seen(event: dict[str, Any]) -> SeenRequest:
    about = event.get("objectRef", {})
    parts = [about.get("resource", ""), about.get("subresource", "")]
    return SeenRequest(
        user=event["user"].get("username", ""),
        verb=event["verb"],
        resource="/".join(filter(None, parts)),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        code=event.get("responseStatus", {}).get("code", 0),
        is_dry_run="dryRun=" in event.get("requestURI", ""),
        at=datetime.datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
    )
