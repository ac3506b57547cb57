"""`ditk-ray logs`, on folders made for the test."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ditk_ray.cli.logs import LogPrinter
from ditk_ray.cli.main import main
from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.record.trial_folder import Piece
from ditk_ray.util.locks import sweep_lock
from tests.processes import PATIENCE
from tests.record.written_sweep import WrittenSweep

COMMAND = str(Path(sys.executable).with_name("ditk-ray"))


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenSweep:
    monkeypatch.chdir(tmp_path)
    made = WrittenSweep(tmp_path / "ditk_ray_results/mine")
    made.trial(0, scores=[(5.0, 10)])
    return made.write()


@pytest.fixture
def seeded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WrittenSweep:
    monkeypatch.chdir(tmp_path)
    made = WrittenSweep(tmp_path / "ditk_ray_results/mine", seeds=(0, 1))
    made.trial(0)
    return made.write()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["logs", *arguments]) == 0
    return capsys.readouterr().out


@contextlib.contextmanager
def following(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    command = [COMMAND, "logs", *arguments, "--follow"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_the_newest_attempts_log_is_printed_as_it_is(sweep, capsys):
    sweep.log(0, "old\n", attempt=0)
    sweep.log(0, "one\ntwo\r\x1b[31mred\x1b[0m\nno end", attempt=1)
    assert shown(capsys, "mine", "0") == "one\ntwo\r\x1b[31mred\x1b[0m\nno end"
    assert shown(capsys, "mine", "best", "--attempt", "0") == "old\n"


def test_the_last_lines_are_printed_if_asked(sweep, capsys):
    sweep.log(0, "1\n2\n3\n")
    assert shown(capsys, "mine", "0", "--tail", "2") == "2\n3\n"


def test_binary_garbage_is_printed_with_replacement_characters(sweep, capsys):
    sweep.log(0, b"a\xff\xfeb\n")
    assert shown(capsys, "mine", "0") == "a��b\n"


def test_a_stream_that_knows_ascii_only_gets_question_marks(sweep):
    sweep.log(0, "ä\n")
    run = subprocess.run(
        [COMMAND, "logs", "mine", "0"],
        capture_output=True,
        env={"PYTHONIOENCODING": "ascii", "PATH": ""},
    )
    assert (run.returncode, run.stdout) == (0, b"?\n")


def test_of_several_seeds_each_line_has_its_seed(seeded, capsys):
    seeded.log(0, "a1\na2", seed="seed_0")
    seeded.log(0, "b\n", seed="seed_1")
    lines = shown(capsys, "mine", "0").splitlines()
    assert sorted(lines) == ["seed_0 | a1", "seed_0 | a2", "seed_1 | b"]


def test_one_of_several_seeds_is_printed_as_it_is(seeded, capsys):
    seeded.log(0, "a\n", seed="seed_0")
    seeded.log(0, "b\n", seed="seed_1")
    assert shown(capsys, "mine", "0", "--seed", "1") == "b\n"


def test_the_only_seed_may_be_named(sweep, capsys):
    sweep.log(0, "a\n")
    assert shown(capsys, "mine", "0", "--seed", "0") == "a\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["mine", "7"], 2, "mine has no such trial"),
        (["mine", "0", "--seed", "7"], 2, "no trial of mine has it"),
        (["mine", "0", "--attempt", "7"], 2, "has no such attempt"),
        (["mine", "1"], 1, "trial_00001 has printed nothing"),
    ],
)
def test_what_is_not_there_is_said(sweep, capsys, arguments, code, said):
    sweep.log(0, "a\n")
    sweep.trial(1, TrialState.PENDING)
    sweep.write()
    assert main(["logs", *arguments]) == code
    assert said in capsys.readouterr().err


def test_following_a_trial_that_has_ended_prints_its_log_and_ends(sweep):
    sweep.log(0, "1\n2\n")
    run = subprocess.run(
        [COMMAND, "logs", "mine", "0", "--follow"], capture_output=True, timeout=20
    )
    assert (run.returncode, run.stdout) == (0, b"1\n2\n")


def test_following_goes_from_a_trial_that_waits_over_its_attempts_to_its_end(sweep):
    trial = sweep.trial(1, TrialState.PENDING)
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder), following("mine", "1") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting for trial_00001, which is pending\n"
        sweep.log(1, "first\n")
        assert process.stdout.readline() == "first\n"
        sweep.log(1, "half a li")
        sweep.log(1, "ne")
        sweep.log(1, "second\n", attempt=1)
        assert process.stdout.readline() == "half a line\n"
        assert process.stdout.readline() == "==> attempt 1 <==\n"
        assert process.stdout.readline() == "second\n"
        sweep.log(1, "last words\n", attempt=1)
        trial.state = TrialState.SUCCEEDED
        sweep.write(SweepStatus.RUNNING)
        rest, _ = process.communicate(timeout=20 * PATIENCE)
    assert rest == "last words\n"
    assert process.returncode == 0


def test_following_waits_for_a_trial_that_the_sweep_has_yet_to_make(sweep):
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder), following("mine", "2") as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting for 2\n"
        sweep.trial(2)
        sweep.log(2, "here\n")
        sweep.write(SweepStatus.RUNNING)
        out, _ = process.communicate(timeout=20 * PATIENCE)
    assert (process.returncode, out) == (0, "here\n")


def test_following_a_trial_that_the_sweep_will_never_make_is_refused(sweep):
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder):
        assert main(["logs", "mine", "3", "--follow"]) == 2  # it makes three: 0, 1 and 2


def test_following_ends_when_the_sweeps_process_is_gone(sweep):
    sweep.trial(1, TrialState.RUNNING)
    sweep.log(1, "some\n")
    sweep.write(SweepStatus.RUNNING)
    with contextlib.ExitStack() as life:
        life.enter_context(sweep_lock(sweep.folder))
        with following("mine", "1") as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "some\n"
            sweep.log(1, "killed he")
            life.close()
            out, _ = process.communicate(timeout=20 * PATIENCE)
    assert (process.returncode, out) == (0, "killed he")


def test_following_several_seeds_puts_the_seed_before_each_line(seeded):
    seeded.record.trials["trial_00000"].state = TrialState.RUNNING
    seeded.write(SweepStatus.RUNNING)
    with sweep_lock(seeded.folder), following("mine", "0") as process:
        assert process.stdout is not None
        seeded.log(0, "a1\na", seed="seed_0")
        assert process.stdout.readline() == "seed_0 | a1\n"
        seeded.log(0, "b1\n", seed="seed_1")
        assert process.stdout.readline() == "seed_1 | b1\n"
        seeded.log(0, "2\nrest", seed="seed_0")
        assert process.stdout.readline() == "seed_0 | a2\n"
        seeded.write()
        out, _ = process.communicate(timeout=20 * PATIENCE)
    assert (process.returncode, out) == (0, "seed_0 | rest\n")


def test_ctrl_c_ends_following_without_a_traceback(sweep):
    sweep.log(0, "some\n")
    sweep.record.trials["trial_00000"].state = TrialState.RUNNING
    sweep.write(SweepStatus.RUNNING)
    with sweep_lock(sweep.folder), following("mine", "0") as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=20 * PATIENCE)
    assert (process.returncode, err) == (130, "interrupted\n")


def test_a_reader_that_stops_early_gets_no_traceback(sweep):
    sweep.log(0, "a line of a log\n" * 200_000)
    command = f"{COMMAND} logs mine 0 | head -n 1"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert (run.stdout, run.stderr) == ("a line of a log\n", "")


def test_a_line_without_an_end_is_printed_in_pieces_while_it_grows(capsys):
    printer = LogPrinter(has_seeds=True)
    for _ in range(3):
        printer.show(Piece(0, "seed_1", "\r50%" * 20_000))
    assert capsys.readouterr().out.count("seed_1 | ") == 3
