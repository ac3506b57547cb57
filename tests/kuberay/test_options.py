"""What is refused before anything is sent."""

from __future__ import annotations

from importlib.metadata import version

import pytest

from ditk_ray.cli.main import main
from ditk_ray.kuberay.options import Group
from tests.kuberay.launches import COMMON, with_flags

RL = ["--name", "rl", *COMMON]
TUNE = ["--", "tune", "--cfg_class", "X"]


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must not print any YAML, and return what it says."""
    assert main(["cluster", *with_flags(list(arguments), "--dry_run")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    return said.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--image", "a:1"], "--name: is missing\n    name the cluster"),
        (["--name", "rl"], "--image: is missing\n    build one from"),
        (["--name", "", *COMMON], "--name: is ''; it has to be a small letter"),
        (["--name", "rl", "--image", ""], "--image: is ''; it has to be an image"),
        (["--name", "rl", "--image", "a b"], "--image: is 'a b'; it has to be an image"),
        (["--name", "Rl", *COMMON], "--name: is 'Rl'; it has to be a small letter, then"),
        (["--name", "9l", *COMMON], "--name: is '9l'; it has to be a small letter, then"),
        (["--name", "a" * 54, *COMMON], "has 54 characters; 53 are allowed"),
        (["--name", "a" * 52, *COMMON, "--num_clusters", "2"], "aa-0', which has 54 characters"),
        ([*RL, "--ray_version", "2.51.1"], "has to be 2.52.0 or newer"),
        ([*RL, "--ray_version", "new"], "--ray_version: is 'new'; it has to be 2.52.0 or newer"),
        ([*RL, "--cpu", "1.5"], "--cpu of group 'workers': is '1.5'"),
        ([*RL, "--cpu", "0"], "is '0'; it should be greater than or equal to 1"),
        ([*RL, "--gpu", "-1"], "--gpu of group 'workers': is '-1'"),
        ([*RL, "--memory", "lots"], "'lots' is not a memory size"),
        ([*RL, "--memory", "32"], "is '32'; it should be greater than or equal to 1048576"),
        ([*RL, "--head_memory", "x"], "--head_memory: 'x' is not a memory size"),
        ([*RL, "--head_cpu", "x"], "--head_cpu: is 'x'"),
        ([*RL, "--min_workers", "3", "--max_workers", "2"], "outside of --min_workers 3 and"),
        ([*RL, "--workers", "5", "--max_workers", "2"], "is 5, outside of --min_workers 0"),
        ([*RL, "--workers", "0", "--min_workers", "1"], "is 0, outside of --min_workers 1"),
        ([*RL, "--max_workers", "0"], "--max_workers of group 'workers': is '0'"),
        ([*RL, "--workers", "2147483648"], "--workers of group 'workers': is '2147483648'"),
        ([*RL, "--max_workers", "9" * 5000], "exceeded maximum size"),
        ([*RL, "--group", "a", "--group", "a"], "--group a: is given more than once"),
        ([*RL, "--group", "A"], "--group of group 'A': is 'A'; it has to be a small letter"),
        ([*RL, "--group", "head"], "what KubeRay calls the group of the head"),
        ([*RL, "--accelerator", "any"], "is any, but --gpu is 0"),
        ([*RL, "--spot"], "--spot of group 'workers': is not known for --cloud generic"),
        ([*RL, "--node_selector", "pool"], "'pool'; it has to be KEY=VALUE"),
        ([*RL, "--node_selector", "a b=c"], "it has to be KEY=VALUE"),
        *(
            ([*RL, "--node_selector", label], "it has to be KEY=VALUE")
            for label in ("pool=gpu_", "_x=a", "y/=a", "/z=a", "A/z=a", "größe=a", f"{'k' * 64}=a")
        ),
        ([*RL, "--node_selector", "a=groß"], "it has to be KEY=VALUE"),
        ([*RL, "--toleration", "_x/y"], "it has to be KEY[=VALUE][:EFFECT]"),
        ([*RL, "--toleration", "a=b_"], "it has to be KEY[=VALUE][:EFFECT]"),
        ([*RL, "--image_pull_secret", "a-"], "--image_pull_secret: is 'a-'; it has to be a name"),
        ([*RL, "--results_claim", ".."], "--results_claim: is '..'; it has to be a name"),
        ([*RL, "--queue", "_q_"], "--queue: is '_q_'; it has to be a value of a label"),
        ([*RL, "--queue", "q" * 64], "it has to be a value of a label"),
        ([*RL, "--image", "größe:1"], "--image: is 'größe:1'; it has to be an image"),
        ([*RL, "--toleration", "a:Never"], "[:EFFECT], with EFFECT NoSchedule"),
        ([*RL, "--toleration", "=a"], "it has to be KEY[=VALUE][:EFFECT]"),
        ([*RL, "--queue", "a b"], "--queue: is 'a b'; it has to be a value of a label"),
        ([*RL, "--queue", "q", "--max_workers", "4"], "Kueue admits a cluster of a fixed size"),
        ([*RL, "--queue", "q", "--workers", "0"], "with --queue it has to be 1 or more"),
        (
            [*RL, "--storage_class", "A"],
            "--storage_class: is 'A'; it has to be a name of an object",
        ),
        ([*RL, "--results_claim", "a", "--results_size", "1G"], "combined with --results_claim"),
        ([*RL, "--image_pull_secret", "A"], "--image_pull_secret: is 'A'; it has to be a name"),
        ([*RL, "--namespace", "A"], "--namespace: is 'A'; it has to be a name of an object"),
        ([*RL, "--mlflow_uri", "sqlite:///a"], "is not an address that the pods could reach"),
        ([*RL, "--mlflow_uri", "http://h:port"], "is not an address that the pods could reach"),
        ([*RL, "--mlflow_uri", "https://me:secret@h"], "--mlflow_uri: has a user or a password"),
        ([*RL, "--mlflow_uri", "http://a", "--no_mlflow"], "combined with --no_mlflow"),
    ],
)
def test_a_launch_that_cannot_work_is_refused(arguments, said, capsys):
    assert said in refused(capsys, "launch", *arguments)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--name", "a" * 48, *COMMON, *TUNE], "has 48 characters; 47 are allowed"),
        ([*RL], "have to begin with tune"),
        ([*RL, "--", "python", "train.py"], "have to begin with tune"),
        ([*RL, *TUNE, "--storage-path=here"], "--storage_path: does not go with a sweep"),
        ([*RL, *TUNE, "--run_mode", "local"], "--run_mode: does not go with a sweep"),
        (
            [*RL, "--working_dir", ".", *TUNE],
            "--working_dir: is '.'; it has to be the https, s3 or gs address of a zip file",
        ),
        ([*RL, "--deadline", "0", *TUNE], "is '0'; it should be greater than or equal to 1"),
        ([*RL, "--deadline", "25000d", *TUNE], "should be less than or equal to 2147483647"),
        ([*RL, "--deadline", "9" * 400, *TUNE], "should be less than or equal to 2147483647"),
        ([*RL, "--", "tune", "--cfg_clas", "X"], "did you mean --cfg_class?"),
        ([*RL, *TUNE, "--bogus"], "the words after --: unrecognized arguments: --bogus"),
        ([*RL, *TUNE, "--name"], "the words after --: argument --name: expected one argument"),
        ([*RL, *TUNE, "--num_samples", "many"], "argument --num_samples: has to be 1 or more"),
        ([*RL, *TUNE, "--name", "by night"], "--name by night: may only contain letters"),
        ([*RL, *TUNE, "--help"], "unrecognized arguments: --help"),
        ([*RL, "--", "tune", "--num_samples", "2"], "--cfg_class: is needed to say which job"),
        ([*RL, "--", "tune", "--list"], "--list: does not go with a sweep"),
        ([*RL, "--", "tune", "--list-searchers"], "--list_searchers: does not go with a sweep"),
        ([*RL, "--", "tune", "--list_schedulers"], "--list_schedulers: does not go with a sweep"),
        ([*RL, *TUNE, "--plan"], "--plan: does not go with a sweep"),
    ],
)
def test_a_job_that_cannot_work_is_refused(arguments, said, capsys):
    assert said in refused(capsys, "run", *arguments)


@pytest.mark.parametrize(
    ("retries", "said"),
    [
        ("2147483648", "it should be less than or equal to 2147483647"),
        ("-1", "it should be greater than or equal to 0"),
        ("few", "it should be a valid integer"),
    ],
)
def test_retries_are_a_number_that_kuberay_can_count_to(retries, said, capsys):
    told = refused(capsys, "run", *RL, "--retries", retries, *TUNE)
    assert f"--retries: is {retries!r}; {said}" in told


def test_the_most_that_kuberay_can_count_to_is_taken(capsys):
    most = ["--workers", "2147483647", "--retries", "2147483647", "--deadline", "2147483647"]
    assert main(["cluster", "run", *RL, "--dry_run", *most, *TUNE]) == 0
    assert capsys.readouterr().out.count(": 2147483647\n") == 4


def test_no_cluster_at_all_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["cluster", "launch", *RL, "--num_clusters", "0", "--dry_run"])
    assert "--num_clusters: has to be 1 or more" in capsys.readouterr().err


def test_an_empty_version_of_ray_is_that_of_this_machine(capsys):
    assert main(["cluster", "launch", *RL, "--ray_version", "", "--dry_run"]) == 0
    assert f"rayVersion: {version('ray')}\n" in capsys.readouterr().out


def test_a_password_is_not_printed_back(capsys):
    said = refused(capsys, "launch", *RL, "--mlflow_uri", "https://me:pa55@h")
    assert "pa55" not in said


def test_all_mistakes_are_told_at_once(capsys):
    said = refused(capsys, "launch", "--name", "R", "--cpu", "x", "--group", "a", "--gpu", "y")
    for part in (
        "--name: is 'R'",
        "--image: is missing",
        "--cpu of group 'a'",
        "--gpu of group 'a'",
    ):
        assert part in said
    assert "Traceback" not in said


def test_any_accelerator_goes_where_nobody_knows_them_all(capsys):
    launch = ["cluster", "launch", *RL, "--gpu", "1", "--accelerator", "X-1", "--dry_run"]
    for cloud, label in (("generic", "nvidia.com/gpu.product"), ("gke", "gke-accelerator")):
        assert main([*launch, "--cloud", cloud]) == 0
        assert f"{label}: X-1" in capsys.readouterr().out


def test_labels_are_taken_as_kubernetes_takes_them():
    labels = ["a.b-c/d_e.F=G-1", "k" * 63 + "=" + "v" * 63, "empty="]
    group = Group.model_validate({"node_selector": labels})
    assert [f"{key}={value}" for key, value in group.node_selector] == labels


def test_tolerations_are_read_in_all_their_forms():
    group = Group.model_validate({"tolerations": ["a", "a:NoExecute", "a=b"]})
    assert group.placement("generic")["tolerations"] == [
        {"key": "a", "operator": "Exists"},
        {"key": "a", "operator": "Exists", "effect": "NoExecute"},
        {"key": "a", "operator": "Equal", "value": "b"},
    ]


def test_what_a_group_says_itself_wins():
    given = {"gpu": 1, "accelerator": "X", "node_selector": ["nvidia.com/gpu.product=Y"]}
    assert Group.model_validate(given).placement("generic") == {
        "nodeSelector": {"nvidia.com/gpu.product": "Y"},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
