"""The parser: dashes and underscores alike, and help with typos."""

from __future__ import annotations

import pytest

from ditk_ray.cli.arguments import Parser


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="tool")
    parser.add_argument("--num_samples", type=int)
    parser.add_argument("--stopper")
    parser.add_argument("--dry_run", action="store_true")
    parser.add_argument("rest", nargs="*")
    return parser


def refusal(parser: Parser, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    with pytest.raises(SystemExit) as caught:
        parser.parse_args(arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    return printed.err


@pytest.mark.parametrize(
    "arguments",
    [["--num_samples", "3"], ["--num-samples", "3"], ["--num-samples=3"], ["--num_samples=3"]],
)
def test_dashes_and_underscores_are_alike(parser, arguments):
    assert parser.parse_args(arguments).num_samples == 3


def test_flags_of_the_command_line_itself_may_have_dashes(parser, monkeypatch):
    monkeypatch.setattr("sys.argv", ["tool", "--num-samples", "3"])

    assert parser.parse_args().num_samples == 3


@pytest.mark.parametrize(
    "arguments",
    [["--stopper", "a-b>=-1"], ["--stopper=a-b>=-1"], ["--stopper=a-b>=-1", "--dry-run"]],
)
def test_a_value_keeps_its_dashes(parser, arguments):
    assert parser.parse_args(arguments).stopper == "a-b>=-1"


def test_what_follows_two_dashes_is_left_alone(parser):
    assert parser.parse_args(["--", "--a-b", "c-d"]).rest == ["--a-b", "c-d"]


def test_flags_of_a_command_may_have_dashes_too():
    parser = Parser(prog="tool")
    command = parser.add_subparsers(required=True).add_parser("tune")
    command.add_argument("--num_samples", type=int)

    assert parser.parse_args(["tune", "--num-samples", "3"]).num_samples == 3


@pytest.mark.parametrize("wrong", ["--num_sampels", "--num-sampels", "--num_sample", "--samples"])
def test_an_unknown_flag_names_the_nearest(parser, capsys, wrong):
    text = refusal(parser, capsys, wrong, "3")

    assert "unrecognized arguments" in text
    assert "did you mean --num_samples?" in text
    assert "see `tool --help`" in text


def test_an_unknown_flag_with_a_value_names_the_nearest(parser, capsys):
    assert "did you mean --num_samples?" in refusal(parser, capsys, "--num_sampels=3")


def test_an_unknown_flag_of_a_command_names_the_nearest(capsys):
    parser = Parser(prog="tool")
    command = parser.add_subparsers(required=True).add_parser("tune")
    command.add_argument("--storage_path")

    assert "did you mean --storage_path?" in refusal(parser, capsys, "tune", "--storage", "x")


def test_a_flag_of_another_command_is_said_to_be_one(capsys):
    parser = Parser(prog="tool")
    commands = parser.add_subparsers(required=True)
    commands.add_parser("tune").add_argument("--storage_path")
    commands.add_parser("submit").add_argument("words", nargs="*")

    text = refusal(parser, capsys, "submit", "tune", "--storage_path", "x")
    assert "a flag of another command" in text
    assert "goes after --" in text


def test_a_flag_like_no_other_gets_no_far_fetched_suggestion(parser, capsys):
    assert "did you mean" not in refusal(parser, capsys, "--zzz")


def test_a_flag_cannot_be_abbreviated(parser, capsys):
    assert "--num" in refusal(parser, capsys, "--num", "3")


def test_a_wrong_value_is_named_in_one_line_without_the_usage(parser, capsys):
    text = refusal(parser, capsys, "--num_samples", "many")

    assert text.startswith("error: argument --num_samples: invalid int value: 'many'\n")
    assert "usage:" not in text
