"""What `ditk-ray wrap` refuses before Ray is there, and the seed's flags for it."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from ditk_ray.cli.main import main
from ditk_ray.cli.wrap_output import CommandLog
from ditk_ray.errors import BadConfigError
from ditk_ray.ray_cluster.wrap import log_name, make_log_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def seed_script():
    path = ROOT / "scripts" / "wrap_resources.py"
    spec = importlib.util.spec_from_file_location("wrap_resources_script", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.wrap_arguments


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "needs exactly one of commands, --task_cfg and --test"),
        (["--test", "--", "a"], "exactly one of commands"),
        (["--cpu", "1", "2", "--", "a", "b", "c"], "--cpu: has 2 values for 3 commands"),
        (["--num_workers", "2", "3", "--", "a"], "--num_workers: has 2 values for 1 commands"),
        (["--num_workers", "2", "--cpu", "1", "--", "a"], "--num_workers: cannot be combined"),
        (["--gpu", "1.5", "--", "a"], "--gpu: gpu is 1.5; above 1 it has to be a whole number"),
        (["--memory", "lots", "--", "a"], "--memory: 'lots' is not a memory size"),
        (["--", "a", ""], "COMMAND: '' is not a command"),
        (["--", "a", "echo 'x"], 'COMMAND: "echo \'x" cannot be split'),
        (["--task_cfg", "none.yaml"], "No such file"),
        (["--task_cfg", "none.yaml", "--cpu", "2"], "has the resources of each task"),
        (["--run_mode", "local", "--ray_address", "h:1", "--", "a"], "--run_mode remote"),
    ],
)
def test_wrong_input_is_refused_at_once(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    try:
        code = main(["wrap", *arguments])
    except SystemExit as left:  # by argparse
        code = left.code
    assert code == 2
    assert said in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_the_seeds_flags_become_ours(seed_script):
    jobs = ["--sub_jobs", "python", "a.py", "--learning-rate", "1e+5", "+", "python", "b.py"]
    assert seed_script(["--num_workers", "2", *jobs]) == (
        ["wrap", "--num_workers", "2", "--", "python a.py --learning-rate 1e+5", "python b.py"]
    )
    assert seed_script(["--num_workers", "1", *jobs[:5]])[-1] == "python a.py --learning-rate 1e+5"
    shares = ["--cpu_per_worker", "2", "--gpu_per_worker", "0.5", "1", "--ram_gb_per_worker", "4"]
    assert seed_script([*shares, "--sub_jobs", "a + b"]) == (
        ["wrap", "--cpu", "2", "--gpu", "0.5", "1", "--memory", "4G", "--", "a", "b"]
    )


@pytest.mark.parametrize("job", ["python a.py --lr 1e+5", "a+b", "c++"])
def test_a_plus_inside_a_word_separates_nothing(seed_script, job):
    assert seed_script(["--num_workers", "2", "--sub_jobs", job])[-2:] == ["--", job]
    assert seed_script(["--num_workers", "2", "--sub_jobs", f"{job} + b"])[-2:] == [job, "b"]


def test_without_resources_each_of_the_seeds_jobs_has_a_whole_node(seed_script):
    assert seed_script(["--sub_jobs", "nvidia-smi", "-L"]) == (
        ["wrap", "--num_workers", "1", "--", "nvidia-smi -L"]
    )
    assert seed_script(["--test", "--ray_address", "h:1"]) == (
        ["wrap", "--test", "--ray_address", "h:1"]
    )


@pytest.mark.ray
def test_on_a_ray_of_its_own_lines_are_prefixed_and_the_first_failure_ends_the_rest(cli, tmp_path):
    long = "sh -c 'touch begun; sleep 600'"
    fail = "sh -c 'while [ ! -e begun ]; do sleep 0.1; done; echo 2; exit 5'"
    commands = [long, fail, "sh -c 'sleep 600' |"]  # all fit, in whatever order Ray takes them
    done = cli("wrap", "--fail_fast", "--cpu", "0.3", "--log_dir", "logs", "--", *commands)
    assert done.returncode == 5, done.stderr
    assert "[1] 2\n" in done.stdout
    rows = dict(line.split()[:2] for line in done.stdout.splitlines()[-3:])
    assert rows == {"0": "cancelled", "1": "failed", "2": "cancelled"}
    assert (tmp_path / "logs" / "1.log").read_text() == "2\n"
    assert "[2] | is passed as an argument" in done.stderr


def test_output_is_kept_whole_and_handed_out_by_lines(tmp_path):
    log = CommandLog(tmp_path / "0.log")
    assert [*log.take(b"a\nhal")] == ["a"]
    assert [*log.take(b"f\r\n\xff")] == ["half"]
    assert [*log.close()] == ["\N{REPLACEMENT CHARACTER}"]
    assert log.path.read_bytes() == b"a\nhalf\r\n\xff"


def test_a_line_without_end_does_not_wait_for_ever(tmp_path):
    log = CommandLog(tmp_path / "0.log")
    assert len([*log.take(b"x" * 100_000)]) == 1
    assert [*log.close()] == []


def test_a_character_may_come_in_two_pieces(tmp_path):
    log = CommandLog(tmp_path / "0.log")
    first, second = "€\n".encode()[:2], "€\n".encode()[2:]
    assert (log.take(first), log.take(second)) == ([], ["€"])


def test_a_log_is_named_after_its_command():
    assert log_name(3, "3") == "3.log"
    assert log_name(3, "../my job") == "3_.._my_job.log"


def test_a_folder_with_files_in_it_is_not_used(tmp_path):
    assert make_log_folder(tmp_path / "new" / "logs").is_dir()
    (tmp_path / "file").touch()
    with pytest.raises(BadConfigError, match="is not empty"):
        make_log_folder(tmp_path)
    with pytest.raises(BadConfigError, match="--log_dir"):
        make_log_folder(tmp_path / "file")
