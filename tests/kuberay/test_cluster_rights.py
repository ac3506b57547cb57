"""`cluster_configs/cluster_rbac.yaml`: with it all of making and deleting clusters works."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ditk_ray.cli.main import main
from tests.dijob.test_rights import wait_for_rules
from tests.kube.api_server import ApiServer
from tests.kuberay.cluster_objects import PLACES, objects_in
from tests.kuberay.launches import COMMON
from tests.processes import PATIENCE

CONFIGS = Path(__file__).resolve().parents[2] / "cluster_configs"
LAUNCH = ["cluster", "launch", "--name", "rl", *COMMON]
RUN = ["cluster", "run", "--name", "night", *COMMON, "--", "tune", "--cfg_class", "X"]
LOOKING = {
    ("watch", "pods"),
    ("get", "pods"),
    ("list", "pods"),
    ("list", "endpoints"),
    ("list", "events"),
    ("get", "secrets"),
    ("get", "pods/portforward"),
    ("create", "pods/portforward"),
}
"""What only the commands that look at clusters use."""


def documents(file: Path, namespace: str = "rl") -> dict[str, dict[str, Any]]:
    text = file.read_text().replace("namespace: rl", f"namespace: {namespace}")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def granted(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (verb, group, resource)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


ROLE = documents(CONFIGS / "cluster_rbac.yaml")["Role"]
HEAD = documents(CONFIGS / "kuberay/access.yaml")["Role"]


def test_who_launches_holds_what_the_head_is_given():
    """Kubernetes would not let a Role be made by somebody who holds less."""
    assert granted(HEAD) <= granted(ROLE)


def test_a_sweep_of_dijobs_on_the_head_has_the_rights_that_it_needs():
    """All of rbac.yaml, but for what only people's commands use."""
    sweeps = granted(documents(CONFIGS / "rbac.yaml")["Role"])
    by_hand = {
        ("patch", "diengine.opendilab.org", "dijobs"),
        ("list", "", "configmaps"),
    }
    assert sweeps - granted(HEAD) == by_hand


@pytest.mark.kube
def test_the_role_suffices_and_without_a_right_nothing_is_made(
    kuberay: ApiServer,
    namespace: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for kind, document in documents(CONFIGS / "cluster_rbac.yaml", namespace).items():
        kuberay.admin.create(PLACES[kind].format(namespace), document)
    own = set(objects_in(kuberay, namespace))
    user = f"system:serviceaccount:{namespace}:ditk-ray-clusters"
    wait_for_rules(kuberay, namespace, user, ROLE["rules"])
    config = kuberay.service_account_kubeconfig(namespace, "ditk-ray-clusters")
    monkeypatch.setenv("KUBECONFIG", str(config))
    for command in (
        LAUNCH,
        LAUNCH,
        RUN,
        ["gc", "--clusters", "--yes"],
        ["cluster", "delete", "--all", "--results", "--yes", "--wait", f"{60 * PATIENCE:.0f}s"],
    ):
        assert main(command) == 0, (command, capsys.readouterr())

    seen = [request for request in kuberay.requests(user) if request.namespace == namespace]
    assert {request.code for request in seen} & {401, 403} == set()
    used = {(request.verb, request.resource) for request in seen}
    handed_out = {(verb, resource) for verb, _, resource in granted(HEAD)}
    # Making is `patch` in the log; that it also takes `create` is what the next part shows.
    made = {(verb, resource) for verb, resource in used if verb == "patch"}
    expected = {(verb, resource) for verb, _, resource in granted(ROLE)} - handed_out - LOOKING
    unused = expected - used - {("create", resource) for _, resource in made}
    assert unused == set()

    rules = [
        {**rule, "verbs": [verb for verb in rule["verbs"] if verb != "create"]}
        if "deployments" in rule["resources"]
        else rule
        for rule in ROLE["rules"]
    ]
    kuberay.grant(namespace, "lacking", rules)
    wait_for_rules(kuberay, namespace, "lacking", rules)
    monkeypatch.setenv("KUBECONFIG", str(kuberay.kubeconfig("lacking", namespace)))
    lacking = {"Role/lacking", "RoleBinding/lacking"}
    before = set(objects_in(kuberay, namespace))
    capsys.readouterr()
    assert main(LAUNCH) == 2
    said = capsys.readouterr().err
    assert f"may not create deployments in namespace {namespace!r}" in said
    assert "cluster_configs/cluster_rbac.yaml" in said
    assert set(objects_in(kuberay, namespace)) == before >= own | lacking


@pytest.mark.kube
def test_gc_of_sweeps_needs_no_right_for_clusters(
    kuberay: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = documents(CONFIGS / "rbac.yaml")["Role"]["rules"]
    kuberay.grant(namespace, "sweeper", rules)
    wait_for_rules(kuberay, namespace, "sweeper", rules)
    monkeypatch.setenv("KUBECONFIG", str(kuberay.kubeconfig("sweeper", namespace)))
    assert main(["gc", "--yes"]) == 0
    assert main(["gc", "--clusters", "--yes"]) == 2
