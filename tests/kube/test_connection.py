"""Finding the cluster, asking it, and what is said when it refuses."""

from __future__ import annotations

import contextlib
import pickle
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.config.options import KubeSettings
from ditk_ray.errors import (
    BadConfigError,
    KubeConflictError,
    KubeError,
    KubeForbiddenError,
    KubeNotFoundError,
    KubeRefusedError,
    KubeUnknownKindError,
    KubeUnreachableError,
)
from ditk_ray.kube import connection
from ditk_ray.kube.connection import Kube, connect, settled
from tests.kube.api_server import ApiServer
from tests.processes import PATIENCE, free_port, wait_until

pytestmark = pytest.mark.kube


def dijob(name: str = "job", **spec: Any) -> dict[str, Any]:
    container = {"name": "di-container", "image": "image", "command": ["python"]}
    task = {"type": "learner", "template": {"spec": {"containers": [container]}}}
    return {
        "apiVersion": "diengine.opendilab.org/v2alpha1",
        "kind": "DIJob",
        "metadata": {"name": name, "labels": {"ditk-ray/sweep": "s-1"}},
        "spec": {"tasks": [task], **spec},
    }


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A home without a kubeconfig, and no other way to a cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def test_dijobs_are_made_read_changed_listed_and_deleted(kube: ApiServer, namespace: str) -> None:
    cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)))
    assert cluster.namespace == namespace
    made = cluster.dijobs.create(dijob())
    assert made["metadata"]["uid"] and cluster.dijobs.get("job") == made
    changed = cluster.dijobs.patch("job", {"spec": {"backoffLimit": 7}})
    assert changed["spec"]["backoffLimit"] == 7 and len(changed["spec"]["tasks"]) == 1
    cluster.dijobs.create(dijob("other") | {"metadata": {"name": "other"}})
    [listed] = cluster.dijobs.list("ditk-ray/sweep=s-1")
    assert listed == changed
    with pytest.raises(KubeConflictError):
        cluster.dijobs.delete("job", uid="that-of-another")
    cluster.dijobs.delete("job", uid=made["metadata"]["uid"])
    assert [each["metadata"]["name"] for each in cluster.dijobs.list()] == ["other"]


def test_a_long_list_comes_in_pages_and_whole(
    kube: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ditk_ray.kube.objects._PAGE", "2")
    cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)))
    for number in range(5):
        cluster.config_maps.create({"metadata": {"name": f"map-{number}", "labels": {"a": "b"}}})
    names = [each["metadata"]["name"] for each in cluster.config_maps.list("a=b")]
    assert names == [f"map-{number}" for number in range(5)]


def test_the_namespace_is_that_given_else_the_contexts_else_default(
    kube: ApiServer, tmp_path: Path
) -> None:
    kubeconfig = kube.kubeconfig(namespace="of-the-context")
    assert connect(KubeSettings(kubeconfig)).namespace == "of-the-context"
    assert connect(KubeSettings(kubeconfig, namespace="given")).namespace == "given"
    config = yaml.safe_load(kubeconfig.read_text())
    del config["contexts"][0]["context"]["namespace"]
    config["contexts"].append({**config["contexts"][0], "name": "second"})
    plain = tmp_path / "config"
    plain.write_text(yaml.safe_dump(config))
    assert connect(KubeSettings(plain, context="second")).namespace == "default"
    with pytest.raises(BadConfigError, match=r"'secnd'\n.*did you mean 'second'"):
        connect(KubeSettings(plain, context="secnd"))


def test_the_kubeconfig_is_found_as_kubectl_finds_it(
    kube: ApiServer, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadConfigError, match=r"no cluster is named\n.*--kubeconfig"):
        connect(KubeSettings())
    with pytest.raises(BadConfigError, match="there is no file"):
        connect(KubeSettings(home / "missing"))
    (home / ".kube").mkdir()
    shutil.copy(kube.kubeconfig(namespace="default"), home / ".kube" / "config")
    assert connect(KubeSettings()).host == kube.url
    monkeypatch.setenv("KUBECONFIG", str(kube.kubeconfig(namespace="other")))
    assert connect(KubeSettings()).namespace == "other"
    (home / "broken").write_text("contexts: 3")
    with pytest.raises(BadConfigError, match="broken"):
        connect(KubeSettings(home / "broken"))


def test_inside_a_cluster_the_service_account_is_used(
    kube: ApiServer, namespace: str, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = kube.service_account(namespace, "sweeper")
    account = f"system:serviceaccount:{namespace}:sweeper"
    kube.grant(
        namespace,
        account,
        [{"apiGroups": ["diengine.opendilab.org"], "resources": ["dijobs"], "verbs": ["list"]}],
    )
    folder = home / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text(token)
    (folder / "namespace").write_text(namespace)
    shutil.copy(kube.authority.certificate, folder / "ca.crt")
    monkeypatch.setattr(connection, "SERVICE_ACCOUNT", folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", kube.url.rpartition(":")[2])
    cluster = connect(KubeSettings())
    assert cluster.namespace == namespace and cluster.dijobs.list() == []
    with pytest.raises(KubeForbiddenError) as caught:
        cluster.dijobs.create(dijob())
    assert str(caught.value) == (
        f"{account} may not create dijobs in namespace '{namespace}'\n"
        "    see cluster_configs/rbac.yaml for the permissions needed"
    )
    with pytest.raises(BadConfigError, match="no context 'tests'"):
        connect(KubeSettings(context="tests"))


def test_a_user_the_server_does_not_know_is_told_to_log_in(
    kube: ApiServer, namespace: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(kube.kubeconfig(namespace=namespace).read_text())
    config["users"][0]["user"] = {"token": "an-old-one"}
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(KubeForbiddenError, match="log in"):
        connect(KubeSettings(tmp_path / "config")).pods.list()


def test_refusals_say_what_is_wrong_without_a_traceback(kube: ApiServer, namespace: str) -> None:
    cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)))
    with pytest.raises(KubeNotFoundError, match=r"get dijobs 'none' in namespace .* not found"):
        cluster.dijobs.get("none")
    cluster.dijobs.create(dijob())
    with pytest.raises(KubeConflictError, match="already exists"):
        cluster.dijobs.create(dijob())
    with pytest.raises(KubeRefusedError) as caught:
        cluster.dijobs.create(dijob("wrong", priority="urgent", cleanPodPolicy="Some"))
    assert "spec.priority" in str(caught.value) and "spec.cleanPodPolicy" in str(caught.value)
    assert len(str(caught.value).splitlines()) < 10
    elsewhere = connect(KubeSettings(kube.kubeconfig(), namespace="nowhere"))
    with pytest.raises(KubeNotFoundError, match="the namespace does not exist"):
        elsewhere.config_maps.create({"metadata": {"name": "map"}})


def test_a_cluster_without_the_operator_is_asked_about_it(kube: ApiServer, namespace: str) -> None:
    with kube.without_dijobs():
        cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)))
        with pytest.raises(KubeUnknownKindError, match="is DI-orchestrator installed"):
            cluster.dijobs.list()
        with pytest.raises(KubeUnknownKindError, match="is DI-orchestrator installed"):
            cluster.dijobs.get("job")


def test_a_server_that_does_not_know_a_kind_any_more_is_waited_for(
    kube: ApiServer, namespace: str
) -> None:
    cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)), patience=30 * PATIENCE)
    cluster.dijobs.create(dijob())
    with kube.without_dijobs():
        with pytest.raises(KubeUnreachableError, match="does not know dijobs"):
            cluster.dijobs.get("job", patience=0.5)
        asking = ThreadPoolExecutor(1).submit(cluster.dijobs.get, "job")
        time.sleep(0.5)
        assert not asking.done()
    assert asking.result(30 * PATIENCE)["metadata"]["name"] == "job"


def test_what_was_allowed_before_and_is_forbidden_now_is_asked_for_again(
    kube: ApiServer, namespace: str
) -> None:
    """As it is for a moment after the API server has started."""
    rule = {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}
    kube.grant(namespace, "somebody", [rule])
    cluster = connect(KubeSettings(kube.kubeconfig("somebody", namespace)), patience=30 * PATIENCE)
    wait_until(lambda: _may_list(cluster), 10, "the right to be there")
    kube.grant(namespace, "somebody", [{**rule, "verbs": ["get"]}])
    wait_until(lambda: not _may_list(cluster), 10, "the right to be gone")
    with pytest.raises(KubeForbiddenError, match="somebody may not list pods"):
        cluster.pods.list(patience=0.5)
    with pytest.raises(KubeForbiddenError, match="somebody may not list dijobs"):
        cluster.dijobs.list()  # which was never allowed: nothing is waited for
    asking = ThreadPoolExecutor(1).submit(cluster.pods.list)
    time.sleep(0.5)
    assert not asking.done()
    kube.grant(namespace, "somebody", [rule])
    assert asking.result(30 * PATIENCE) == []


def _may_list(cluster: Kube) -> bool:
    try:
        cluster.pods.list(patience=0)
    except KubeForbiddenError:
        return False
    return True


def test_settled_settings_mean_the_same_cluster_whatever_is_chosen_later(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def write(current: str) -> None:
        contexts = [
            {"name": name, "context": {"cluster": name, "user": "u", "namespace": f"of-{name}"}}
            for name in ("one", "two")
        ]
        clusters = [
            {"name": name, "cluster": {"server": f"https://{name}"}} for name in ("one", "two")
        ]
        config = {"contexts": contexts, "clusters": clusters, "current-context": current}
        users = [{"name": "u", "user": {"token": "t"}}]
        (home / "config").write_text(yaml.safe_dump({"kind": "Config", "users": users, **config}))

    write("one")
    monkeypatch.chdir(home)
    monkeypatch.setenv("KUBECONFIG", "config:missing")
    before = settled(KubeSettings())
    given = settled(KubeSettings(namespace="mine"))
    write("two")
    monkeypatch.delenv("KUBECONFIG")
    monkeypatch.chdir("/")
    assert (connect(before).host, connect(before).namespace) == ("https://one", "of-one")
    assert (connect(given).host, connect(given).namespace) == ("https://one", "mine")


def test_what_cannot_be_settled_is_left_for_connect_to_refuse(home: Path) -> None:
    lost = KubeSettings(home / "nowhere")
    assert settled(lost) == lost
    with pytest.raises(BadConfigError, match="there is no file"):
        connect(lost)


def test_errors_travel_between_processes() -> None:
    conflict = pickle.loads(pickle.dumps(KubeConflictError("is there", 409, True)))
    assert conflict.is_there_already and str(conflict) == "is there"
    error = pickle.loads(pickle.dumps(KubeForbiddenError("may not", 403)))
    assert isinstance(error, KubeError) and str(error) == "may not" and error.status == 403


def test_a_server_that_is_away_is_waited_for_but_not_for_ever(
    kube: ApiServer, namespace: str
) -> None:
    cluster = connect(KubeSettings(kube.kubeconfig(namespace=namespace)), patience=30 * PATIENCE)
    assert cluster.dijobs.list() == []
    kube.kill()
    begun = time.monotonic()
    with pytest.raises(KubeUnreachableError, match=r"127.0.0.1:\d+ cannot be reached"):
        cluster.dijobs.list(patience=1)
    assert time.monotonic() - begun < 2 * PATIENCE
    back = threading.Timer(1, kube.start)
    back.start()
    try:
        with contextlib.suppress(KubeConflictError):  # its first answer was lost
            cluster.dijobs.create(dijob(), is_repeatable=True)
    finally:
        back.join()
    assert cluster.dijobs.get("job")


def test_a_server_of_another_name_or_certificate_is_not_trusted(
    kube: ApiServer, namespace: str, tmp_path: Path
) -> None:
    config = yaml.safe_load(kube.kubeconfig(namespace=namespace).read_text())
    del config["clusters"][0]["cluster"]["certificate-authority"]
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    begun = time.monotonic()
    with pytest.raises(KubeUnreachableError, match="not trusted"):
        connect(KubeSettings(tmp_path / "config"), patience=30).pods.list()
    assert time.monotonic() - begun < 5 * PATIENCE
    config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{free_port()}"
    (tmp_path / "config").write_text(yaml.safe_dump(config))
    with pytest.raises(KubeUnreachableError, match="Connection refused"):
        connect(KubeSettings(tmp_path / "config"), patience=0).pods.list()


def test_settings_can_be_read_without_loading_the_client() -> None:
    code = (
        "import ditk_ray.kube.connection as c, sys, pickle; pickle.dumps(c.KubeSettings()); "
        "sys.exit('kubernetes' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
