"""`cluster_configs/rbac.yaml`: it suffices, and nothing in it can be left out."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.cli.main import main
from ditk_ray.config.options import KubeSettings
from ditk_ray.dijob.liveness import Heartbeat
from ditk_ray.dijob.manifests import JobManifests
from ditk_ray.dijob.sweep_jobs import SweepJobs
from ditk_ray.errors import DitkRayError
from ditk_ray.execution.executor import Ended
from ditk_ray.kube.connection import Kube, connect
from tests.kube.api_client import DIJOBS
from tests.kube.api_server import ApiServer
from tests.kube.job_files import dijob, task, write
from tests.kube.stand_in.cluster import StandInCluster
from tests.processes import wait_until

pytestmark = pytest.mark.kube

FILE = Path(__file__).resolve().parents[2] / "cluster_configs" / "rbac.yaml"
PLACES = {
    "ServiceAccount": "api/v1/namespaces/{}/serviceaccounts",
    "Role": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
}
Rules = list[dict[str, Any]]
Do = Callable[..., None]


def documents(namespace: str = "rl") -> dict[str, dict[str, Any]]:
    """Read the file as somebody does who puts his own namespace in."""
    text = FILE.read_text().replace("namespace: rl", f"namespace: {namespace}")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


RULES: Rules = documents()["Role"]["rules"]
GRANTED = {
    (verb, resource) for rule in RULES for resource in rule["resources"] for verb in rule["verbs"]
}
SWEEP = "mine-0a1b2c"


def without(verb: str, resource: str) -> Rules:
    rules = copy.deepcopy(RULES)
    for rule in rules:
        if rule["resources"] == [resource]:
            rule["verbs"].remove(verb)
    return [rule for rule in rules if rule["verbs"]]


def wait_for_rules(kube: ApiServer, namespace: str, user: str, rules: Rules) -> None:
    """Wait until the API server goes by what was granted."""
    last = rules[-1]
    asked = {
        "namespace": namespace,
        "group": last["apiGroups"][0],
        "resource": last["resources"][0],
        "verb": last["verbs"][-1],
    }
    body = {"spec": {"user": user, "resourceAttributes": asked}}
    path = "apis/authorization.k8s.io/v1/subjectaccessreviews"
    wait_until(lambda: kube.admin.create(path, body)["status"]["allowed"], 10, "the rules to hold")


def sweep_order(name: str, command: str) -> JobManifests:
    """Make a job of the sweep, with a ConfigMap."""
    labels = {"ditk-ray/sweep": SWEEP, "app.kubernetes.io/managed-by": "ditk-ray"}
    config_map = {"metadata": {"name": name, "labels": labels}, "data": {"config.py": "1"}}
    return JobManifests(name, dijob(name, task("none", command), labels=labels), config_map)


def job_with_config(folder: Path, name: str) -> str:
    """Write the template of a job with a ConfigMap."""
    job = dijob(name, task("none", "cat /etc/config/config.py; sleep 1"))
    pod = job["spec"]["tasks"][0]["template"]["spec"]
    pod["containers"][0]["volumeMounts"] = [{"name": "config", "mountPath": "/etc/config"}]
    pod["volumes"] = [{"name": "config", "configMap": {"name": "config-py"}}]
    metadata = {"name": "config-py"}
    data = {"config.py": "the config"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    return write(folder, job, config_map)


def live_a_sweep(cluster: Kube, folder: Path) -> None:
    """Run a job from its submission to its end as a sweep does, and one that cannot start."""
    watch = SweepJobs(cluster, SWEEP)
    watch.submit(sweep_order("trial", "echo hello; sleep 0.3"), folder / "trial.log")
    wait_until(
        lambda: any(isinstance(event, Ended) for event in watch.events("trial", 0, 1)),
        20,
        "the job's end",
    )
    assert (folder / "trial.log").read_text() == "hello\n"
    watch.release("trial")
    assert watch.close() == []


def test_the_role_suffices_for_a_sweep_and_for_every_command(
    kube: ApiServer,
    namespace: str,
    stand_in: StandInCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for kind, document in documents(namespace).items():
        kube.admin.create(PLACES[kind].format(namespace), document)
    user = f"system:serviceaccount:{namespace}:ditk-ray"
    wait_for_rules(kube, namespace, user, RULES)
    config = kube.service_account_kubeconfig(namespace, "ditk-ray")
    monkeypatch.setenv("KUBECONFIG", str(config))
    file = job_with_config(tmp_path, "single")

    live_a_sweep(connect(KubeSettings()), tmp_path)
    for command in (
        f"dijob create -f {file}",
        "dijob wait single --for running",
        "dijob get",
        "dijob describe single",
        "dijob logs single --follow",
        "dijob wait single",
        "dijob logs single",
        "dijob patch single -p {metadata:{labels:{a:b}}}",
        "dijob scale single --task serial --replicas 2",
        "dijob delete single",
        f"dijob create -f {file} --name other",
        "dijob wait other",
        "dijob delete --all-finished --yes",
        "gc --yes",
    ):
        assert main(command.split()) == 0, (command, capsys.readouterr())

    seen = [request for request in kube.requests(user) if request.namespace == namespace]
    assert {request.code for request in seen} & {401, 403} == set()
    # A ConfigMap is read only when one of its name is there already.
    unused = GRANTED - {(request.verb, request.resource) for request in seen}
    assert unused <= {("get", "configmaps")}


Action = Callable[[Kube, Path], Any]


def command(line: str) -> Action:
    """Run a command; what it refuses is raised as it would be printed."""

    def act(cluster: Kube, folder: Path) -> None:
        from ditk_ray.cli.main import build_parser

        file = job_with_config(folder, "made")
        given = build_parser().parse_args(line.format(file=file).split())
        given.run(given)

    return act


def watch_a_sweep(cluster: Kube, folder: Path) -> None:
    SweepJobs(cluster, SWEEP).close()


def submit_over_a_config_map(cluster: Kube, folder: Path) -> None:
    """Submit a job of whose name there is a ConfigMap, as after a lost answer."""
    cluster.config_maps.create({"metadata": {"name": "made"}})
    command("dijob create -f {file}")(cluster, folder)


ACTIONS: dict[tuple[str, str], list[Action]] = {
    ("create", "dijobs"): [command("dijob create -f {file}")],
    ("get", "dijobs"): [
        command(f"dijob {verb} there") for verb in ("get", "logs", "logs --follow", "wait")
    ],
    ("list", "dijobs"): [command("dijob get"), command("gc"), watch_a_sweep],
    ("watch", "dijobs"): [watch_a_sweep],
    ("patch", "dijobs"): [command("dijob patch there -p {{metadata:{{labels:{{a:b}}}}}}")],
    ("delete", "dijobs"): [command("dijob delete there")],
    ("list", "pods"): [
        command("dijob describe there"),
        command("dijob logs --follow there"),
        watch_a_sweep,
    ],
    ("watch", "pods"): [watch_a_sweep],
    ("get", "pods/log"): [command("dijob logs there")],
    ("list", "events"): [command("dijob describe there")],
    ("create", "configmaps"): [
        command("dijob create -f {file}"),
        lambda cluster, folder: Heartbeat(cluster.config_maps, "new-000000").beat(),
    ],
    ("get", "configmaps"): [submit_over_a_config_map],
    ("list", "configmaps"): [command("gc"), command("dijob delete --all-finished")],
    ("patch", "configmaps"): [lambda cluster, folder: Heartbeat(cluster.config_maps, SWEEP).beat()],
    ("delete", "configmaps"): [
        lambda cluster, folder: Heartbeat(cluster.config_maps, SWEEP).remove()
    ],
}


def test_every_right_in_the_role_has_something_that_needs_it() -> None:
    assert set(ACTIONS) == GRANTED


def test_each_right_is_needed_and_is_named_when_it_is_missing(
    kube: ApiServer,
    namespace: str,
    stand_in: StandInCluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All rights in one test: an API server with a job and its log is there for all."""
    labels = {"ditk-ray/sweep": SWEEP, "app.kubernetes.io/managed-by": "ditk-ray"}
    job = dijob("there", task("none", "true"), labels=labels)
    kube.admin.create(f"{DIJOBS}/namespaces/{namespace}/dijobs", job)
    stand_in.wait_for_phase("there", "Succeeded")
    for number, (verb, resource) in enumerate(sorted(GRANTED)):
        user = f"lacks-{number}"
        kube.grant(namespace, user, without(verb, resource))
    for number, (verb, resource) in enumerate(sorted(GRANTED)):
        user = f"lacks-{number}"
        wait_for_rules(kube, namespace, user, without(verb, resource))
        config = kube.kubeconfig(user, namespace)
        monkeypatch.setenv("KUBECONFIG", str(config))
        for action in ACTIONS[verb, resource]:
            with pytest.raises(DitkRayError) as refused:
                action(connect(KubeSettings()), tmp_path)
            expected = f"{user} may not {verb} {resource} in namespace {namespace!r}"
            assert expected in str(refused.value)
            assert "cluster_configs/rbac.yaml" in str(refused.value)
