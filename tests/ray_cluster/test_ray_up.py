"""cluster_configs/aws.yaml and gcp.yaml, as far as Ray's own launcher checks them offline."""

from __future__ import annotations

import copy
import itertools
import os
import re
import shlex
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest

from ditk_ray.kube.yaml_text import read_yaml
from ditk_ray.ray_cluster.nodes import WORKER_GROUPS, worker_groups

CONFIGS = Path(__file__).parents[2] / "cluster_configs"


@pytest.fixture(params=["aws", "gcp"])
def config(request: pytest.FixtureRequest) -> dict[str, Any]:
    return read_yaml((CONFIGS / f"{request.param}.yaml").read_text())


def environment(config: dict[str, Any], *fields: str) -> dict[str, str]:
    """Return what the container of a node gets to know, as a shell reads Docker's options."""
    words = shlex.split(" ".join(word for field in fields for word in config["docker"][field]))
    pairs = itertools.pairwise(words)
    return dict(value.split("=", 1) for option, value in pairs if option == "--env")


def workers(config: dict[str, Any]) -> dict[str, Any]:
    types = config["available_node_types"]
    return {name: kind for name, kind in types.items() if name != config["head_node_type"]}


def test_it_is_valid_by_rays_own_schema_and_defaults(config):
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    unset = prepared.keys() - config.keys()
    assert not [name for name in unset if "commands" in name], "nothing of Ray's defaults runs"


def test_a_mistake_would_be_seen(config):
    import jsonschema
    from ray.autoscaler._private.util import prepare_config, validate_config

    mistaken = copy.deepcopy(config) | {"max_worker": 8}
    with pytest.raises(jsonschema.ValidationError, match="max_worker"):
        validate_config(prepare_config(mistaken))


def test_sweeps_know_of_the_workers_that_may_still_start(config):
    told = environment(config, "head_run_options")[WORKER_GROUPS]
    groups = {
        group.name: (group.min, group.max, group.resources())
        for group in worker_groups({WORKER_GROUPS: told})
    }
    assert groups == {
        name: (kind["min_workers"], kind["max_workers"], kind["resources"])
        for name, kind in workers(config).items()
    }


def test_workers_are_spot_instances_and_the_head_is_not(config):
    text = {name: str(kind) for name, kind in config["available_node_types"].items()}
    spot = {name for name, shown in text.items() if re.search("spot", shown, re.IGNORECASE)}
    assert spot == workers(config).keys()
    assert config["available_node_types"]["head"]["resources"] == {"CPU": 0}


def test_nothing_but_ssh_is_reachable_from_outside(config):
    assert "security_group" not in config["provider"]
    head_start = config["head_start_ray_commands"][-1]
    assert "--dashboard-host=127.0.0.1" in shlex.split(head_start)
    assert "0.0.0.0" not in str(config)
    assert not re.search("--publish|-p ", str(config["docker"]))


def test_every_node_wants_the_token_and_results_are_where_all_nodes_see_them(config):
    shared = environment(config, "run_options")
    assert shared["RAY_AUTH_MODE"] == "token"
    assert "--volume /mnt/results:/results" in config["docker"]["run_options"]
    for name in ("RAY_AUTH_TOKEN_PATH", "DITK_RAY_STORAGE"):
        assert Path(shared[name]).is_relative_to("/results")
    assert any("mount " in command for command in config["initialization_commands"])
    assert config["file_mounts"] == {}


def test_the_head_makes_a_token_once_that_only_its_user_can_read(config, tmp_path):
    token = tmp_path / "tokens" / "ditk-ray"
    surroundings = {**os.environ, "RAY_AUTH_TOKEN_PATH": str(token)}
    make_token = ["bash", "-c", config["head_start_ray_commands"][0]]
    subprocess.run(make_token, env=surroundings, check=True)
    first = token.read_text()
    subprocess.run(make_token, env=surroundings, check=True)
    assert re.fullmatch("[0-9a-f]{64}", first)
    assert token.read_text() == first
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    assert stat.S_IMODE(token.parent.stat().st_mode) == 0o700


def test_ray_is_started_with_options_that_it_has(config):
    from ray.scripts.scripts import start

    known = {option for parameter in start.params for option in parameter.opts}
    for field in ("head_start_ray_commands", "worker_start_ray_commands"):
        words = shlex.split(config[field][-1])
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        assert given
        assert given <= known


def test_commands_are_sound_shell(config):
    for field in (
        "initialization_commands",
        "head_setup_commands",
        "head_start_ray_commands",
        "worker_start_ray_commands",
    ):
        for command in config.get(field, []):
            checked = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True)
            assert checked.returncode == 0, checked.stderr


def test_images_are_those_of_the_dockerfile_by_version(config):
    docker = config["docker"]
    kinds = config["available_node_types"].values()
    images = [docker["head_image"], docker["worker_image"]]
    images += [kind["docker"]["worker_image"] for kind in kinds if "docker" in kind]
    dockerfile = (CONFIGS / "Dockerfile").read_text()
    assert all(f"-t {image}" in dockerfile for image in images)
