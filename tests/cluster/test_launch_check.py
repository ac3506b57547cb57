"""What is refused before anything is sent."""

from __future__ import annotations

import pytest

from ditk_ray.cli.main import main
from ditk_ray.cluster.kuberay.placement import parse_toleration
from ditk_ray.cluster.kuberay.request_values import quantity_of
from tests.cluster.launches import COMMON, with_flags

RL = ["--name", "rl", *COMMON]
GKE = [*RL, "--cloud", "gke"]
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
        (["--image", "a:1"], "--name: is missing"),
        (["--name", "rl"], "--image: is missing"),
        (["--name", "rl", "--image", "a b"], "--image a b: is no image"),
        (["--name", "Rl", *COMMON], "--name Rl: has to begin with a small letter"),
        (["--name", "9l", *COMMON], "--name 9l: has to begin with a small letter"),
        (["--name", "a" * 54, *COMMON], "has 54 characters; 53 are allowed"),
        (["--name", "a" * 52, *COMMON, "--num_clusters", "2"], "has 54 characters"),
        ([*RL, "--num_clusters", "0"], "--num_clusters: is 0"),
        ([*RL, "--ray_version", "2.51.1"], "has to be 2.52.0 or newer"),
        ([*RL, "--ray_version", "new"], "is no version"),
        ([*RL, "--cpu", "1.5"], "--cpu of group 'workers': is '1.5'"),
        ([*RL, "--cpu", "0"], "has to be a whole number, 1 or more"),
        ([*RL, "--gpu", "-1"], "--gpu of group 'workers': is '-1'"),
        ([*RL, "--memory", "lots"], "'lots' is no amount of memory"),
        ([*RL, "--memory", "32"], "is '32', less than 1M"),
        ([*RL, "--head_memory", "x"], "--head_memory: 'x' is no amount"),
        ([*RL, "--head_cpu", "x"], "--head_cpu: is 'x'"),
        ([*RL, "--min_workers", "3", "--max_workers", "2"], "is 3, more than --max_workers"),
        ([*RL, "--workers", "5", "--max_workers", "2"], "is 5, outside of --min_workers 0"),
        ([*RL, "--workers", "0", "--min_workers", "1"], "is 0, outside of --min_workers 1"),
        ([*RL, "--max_workers", "0"], "--max_workers of group 'workers': is '0'"),
        ([*RL, "--workers", "2147483648"], "--workers of group 'workers': is '2147483648'"),
        ([*RL, "--max_workers", "9" * 5000], "and 2147483647 at most"),
        ([*RL, "--group", "a", "--group", "a"], "--group a: is there more than once"),
        ([*RL, "--group", "A"], "--group A: has to begin"),
        ([*RL, "--group", "head"], "what KubeRay calls the group of the head"),
        ([*RL, "--accelerator", "any"], "is any, but --gpu is 0"),
        ([*GKE, "--gpu", "1", "--accelerator", "nvidia-l5"], "did you mean 'nvidia-l4'"),
        ([*RL, "--spot"], "--spot of group 'workers': is not known for --cloud generic"),
        ([*RL, "--node_selector", "pool"], "'pool'; it has to be KEY=VALUE"),
        ([*RL, "--node_selector", "a b=c"], "it has to be KEY=VALUE"),
        ([*RL, "--toleration", "a:Never"], "'Never' is no effect"),
        ([*RL, "--toleration", "=a"], "it has to be KEY[=VALUE][:EFFECT]"),
        ([*RL, "--queue", "a b"], "is no name of a LocalQueue"),
        ([*RL, "--queue", "q", "--max_workers", "4"], "Kueue admits a cluster of a fixed size"),
        ([*RL, "--queue", "q", "--workers", "0"], "with --queue it has to be 1 or more"),
        (
            [*RL, "--queue", "q", *(f"--group=g{n}" for n in range(8))],
            "has 8 groups; Kueue takes 7",
        ),
        ([*RL, "--storage_class", "A"], "--storage_class A: is no name"),
        ([*RL, "--results_claim", "a", "--results_size", "1G"], "together with --results_claim"),
        ([*RL, "--image_pull_secret", "A"], "--image_pull_secret A: is no name"),
        ([*RL, "--namespace", "A"], "--namespace A: is no name"),
        ([*RL, "--mlflow_uri", "sqlite:///a"], "is no address of a server"),
        ([*RL, "--mlflow_uri", "http://h:port"], "is no address of a server"),
        ([*RL, "--mlflow_uri", "https://me:secret@h"], "--mlflow_uri: has a user or a password"),
        ([*RL, "--mlflow_uri", "http://a", "--no_mlflow"], "together with --no_mlflow"),
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
        ([*RL, *TUNE, "--storage-path=here"], "--storage_path: is not for a sweep in a cluster"),
        ([*RL, *TUNE, "--run_mode", "local"], "--run_mode: is not for a sweep"),
        ([*RL, "--working_dir", ".", *TUNE], "--working_dir .: is no address of a zip file"),
        ([*RL, "--deadline", "0", *TUNE], "--deadline: has to be from one second"),
        ([*RL, "--deadline", "25000d", *TUNE], "--deadline: has to be from one second"),
        ([*RL, "--deadline", "9" * 400, *TUNE], "--deadline: has to be from one second"),
        ([*RL, "--", "tune", "--cfg_clas", "X"], "did you mean --cfg_class?"),
        ([*RL, *TUNE, "--bogus"], "the words after --: unrecognized arguments: --bogus"),
        ([*RL, *TUNE, "--name"], "the words after --: argument --name: expected one argument"),
        ([*RL, *TUNE, "--num_samples", "many"], "argument --num_samples: invalid"),
        ([*RL, *TUNE, "--name", "by night"], "--name by night: has to be letters"),
        ([*RL, *TUNE, "--help"], "unrecognized arguments: --help"),
        ([*RL, "--", "tune", "--num_samples", "2"], "--cfg_class: is needed to say which job"),
        ([*RL, "--", "tune", "--list"], "--list: only shows something"),
        ([*RL, "--", "tune", "--list-searchers"], "--list_searchers: only shows something"),
        ([*RL, "--", "tune", "--list_schedulers"], "--list_schedulers: only shows something"),
        ([*RL, *TUNE, "--plan"], "--plan: only shows something"),
    ],
)
def test_a_job_that_cannot_work_is_refused(arguments, said, capsys):
    assert said in refused(capsys, "run", *arguments)


@pytest.mark.parametrize("retries", ["2147483648", "9" * 5000, "-1", "few"])
def test_retries_are_a_number_that_kuberay_can_count_to(retries, capsys):
    with pytest.raises(SystemExit) as caught:
        main(["cluster", "run", *RL, "--dry_run", "--retries", retries, *TUNE])
    assert caught.value.code == 2
    assert "is no number from 0 to 2147483647" in capsys.readouterr().err


def test_the_most_that_kuberay_can_count_to_is_taken(capsys):
    most = ["--workers", "2147483647", "--retries", "2147483647", "--deadline", "2147483647"]
    assert main(["cluster", "run", *RL, "--dry_run", *most, *TUNE]) == 0
    assert capsys.readouterr().out.count(": 2147483647\n") == 4


def test_a_password_is_not_printed_back(capsys):
    said = refused(capsys, "launch", *RL, "--mlflow_uri", "https://me:pa55@h")
    assert "pa55" not in said


def test_all_mistakes_are_told_at_once(capsys):
    said = refused(capsys, "launch", "--name", "R", "--cpu", "x", "--group", "a", "--gpu", "y")
    for part in ("--name R", "--image: is missing", "--cpu of group 'a'", "--gpu of group 'a'"):
        assert part in said
    assert "Traceback" not in said


def test_any_accelerator_goes_where_nobody_knows_them_all(capsys):
    assert main(["cluster", "launch", *RL, "--gpu", "1", "--accelerator", "X-1", "--dry_run"]) == 0
    assert "nvidia.com/gpu.product: X-1" in capsys.readouterr().out


def test_tolerations_are_read_in_all_their_forms():
    assert parse_toleration("a") == {"key": "a", "operator": "Exists"}
    assert parse_toleration("a:NoExecute") == {
        "key": "a",
        "operator": "Exists",
        "effect": "NoExecute",
    }
    assert parse_toleration("a=b") == {"key": "a", "operator": "Equal", "value": "b"}


@pytest.mark.parametrize(
    ("amount", "text"),
    [(2**40, "1Ti"), (16 * 2**30, "16Gi"), (3 * 2**29, "1536Mi"), (2**20 + 1, "1048577")],
)
def test_amounts_are_written_as_kubernetes_does(amount, text):
    assert quantity_of(amount) == text
