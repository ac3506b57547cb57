"""The parser, flags made of fields, and commands that are loaded late."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import pytest
from pydantic import BaseModel, Field

from ditk_ray.cli.flags import (
    Command,
    Parser,
    SweepCommand,
    add_commands,
    add_flags,
    flag_values,
    read_flags,
)
from ditk_ray.cli.servers import ServerCommand
from ditk_ray.config.options import (
    KubeSettings,
    RaySettings,
    option,
    options_of,
    port,
    positive,
    seconds,
)
from ditk_ray.errors import BadConfigError


@pytest.fixture
def parser() -> Parser:
    parser = Parser(prog="tool")
    parser.add_argument("--num_samples", type=int)
    parser.add_argument("--stopper")
    parser.add_argument("--dry_run", action="store_true")
    parser.add_argument("rest", nargs="*")
    return parser


def parser_refusal(parser: Parser, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
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
    text = parser_refusal(parser, capsys, wrong, "3")

    assert "unrecognized arguments" in text
    assert "did you mean --num_samples?" in text
    assert "see `tool --help`" in text


def test_an_unknown_flag_with_a_value_names_the_nearest(parser, capsys):
    assert "did you mean --num_samples?" in parser_refusal(parser, capsys, "--num_sampels=3")


def test_an_unknown_flag_of_a_command_names_the_nearest(capsys):
    parser = Parser(prog="tool")
    command = parser.add_subparsers(required=True).add_parser("tune")
    command.add_argument("--storage_path")

    assert "did you mean --storage_path?" in parser_refusal(
        parser, capsys, "tune", "--storage", "x"
    )


def test_a_flag_that_the_job_is_to_have_belongs_behind_the_dashes(capsys):
    parser = Parser(prog="tool")
    submit = parser.add_subparsers(required=True).add_parser("submit", usage="submit -- JOB")
    submit.add_argument("words", nargs="*")
    text = parser_refusal(parser, capsys, "submit", "tune", "--storage_path", "x")
    assert "go after --" in text


def test_a_flag_like_no_other_gets_no_far_fetched_suggestion(parser, capsys):
    assert "did you mean" not in parser_refusal(parser, capsys, "--zzz")


def test_a_flag_cannot_be_abbreviated(parser, capsys):
    assert "--num" in parser_refusal(parser, capsys, "--num", "3")


def test_a_wrong_value_is_named_in_one_line_without_the_usage(parser, capsys):
    text = parser_refusal(parser, capsys, "--num_samples", "many")

    assert text.startswith("error: argument --num_samples: invalid int value: 'many'\n")
    assert "usage:" not in text


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, kw_only=True)
class Options:
    name: str = option("what to call it", positional=True)
    other: str = option("(default: %(default)s)", "best", positional=True)
    count: int | None = option("how many", metavar="N", parse=positive, group="numbers")
    time: float = option("how long", 60.0, parse=seconds, group="numbers")
    share: float | None = option("how much")
    file: Path | None = option("where", flags=["-f", "--file"])
    is_loud: bool = option("say more", False, flags=["--loud"])
    mode: Literal["max", "min"] = option("", "max")
    colour: Colour | None = option("of it")
    set: list[str] = option("a value", [], metavar="PATH=VALUE")
    env: tuple[str, ...] = option("a variable", ())
    cpu: tuple[float, ...] = option("of each", (), nargs="+")
    kube: KubeSettings = options_of(KubeSettings, group="a cluster")
    command: tuple[str, ...] = ()


def read(*words: str, cls: type = Options) -> Any:
    parser = Parser(prog="tool")
    add_flags(parser, cls)
    return read_flags(cls, parser.parse_args(words))


def refusal(capsys: pytest.CaptureFixture[str], *words: str, cls: type = Options) -> str:
    with pytest.raises(SystemExit) as left:
        read(*words, cls=cls)
    assert left.value.code == 2
    return capsys.readouterr().err


def test_what_is_not_given_has_the_class_own_default():
    assert read("mine") == Options(name="mine")


def test_each_type_makes_its_flag():
    words = ["mine", "last", "--count", "3", "--time", "2m", "--share", "0.5", "-f", "a/b"]
    words += ["--loud", "--mode", "min", "--colour", "blue", "--set", "a=1", "--set", "b=2"]
    words += ["--env", "X"]
    words += ["--namespace", "rl", "--cpu", "1", "2"]
    assert read(*words) == Options(
        name="mine",
        other="last",
        count=3,
        time=120.0,
        share=0.5,
        file=Path("a/b"),
        is_loud=True,
        mode="min",
        colour=Colour.BLUE,
        set=["a=1", "b=2"],
        env=("X",),
        cpu=(1.0, 2.0),
        kube=KubeSettings(namespace="rl"),
    )


def test_lists_are_not_shared_between_two_readings():
    first = read("mine", "--set", "a=1")
    assert read("mine", "--set", "b=2").set == ["b=2"]
    assert first.set == ["a=1"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "the following arguments are required: NAME"),
        (["mine", "--count", "0"], "argument --count: has to be 1 or more"),
        (["mine", "--count", "many"], "argument --count: has to be 1 or more"),
        (["mine", "--time", "soon"], "argument --time: 'soon'"),
        (["mine", "--mode", "mean"], "invalid choice: 'mean' (choose from 'max', 'min')"),
        (["mine", "--colour", "green"], "invalid choice: 'green' (choose from 'red', 'blue')"),
        (["mine", "--cuont", "3"], "did you mean --count?"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(words, said, capsys):
    assert said in refusal(capsys, *words).splitlines()[0]


def test_help_has_the_groups_the_defaults_and_the_names_of_values():
    parser = Parser(prog="tool")
    add_flags(parser, Options)
    text = parser.format_help()
    assert "numbers:\n  --count N" in text
    assert "a cluster:\n  --kubeconfig FILE" in text
    assert "(default: best)" in text
    assert "--command" not in text


@pytest.mark.parametrize(("text", "number"), [("1", 1), ("65535", 65535)])
def test_a_port_is_a_number_of_16_bits(text, number):
    assert port(text) == number
    with pytest.raises(ValueError, match="from 1 to 65535"):
        port("65536")


class Model(BaseModel):
    name: str = Field(description="of the cluster")
    cpu: int = Field(4, description="(default: %(default)s)", json_schema_extra={"metavar": "N"})
    spot: bool = Field(False, description="on spot nodes", json_schema_extra={"flags": ["--cheap"]})
    cloud: Literal["gke", "generic"] = Field("generic", description="which")
    tolerations: tuple[str, ...] = Field((), description="a taint")
    hidden: int = 1


def test_a_model_checks_its_values_itself():
    words = ["--name", "rl", "--cpu", "8", "--cheap", "--tolerations", "a", "--tolerations", "b"]
    made = read(*words, cls=Model)
    assert made == Model(name="rl", cpu=8, spot=True, tolerations=("a", "b"))
    assert made.model_fields_set == {"name", "cpu", "spot", "tolerations"}


def test_a_model_is_asked_only_about_what_is_given(capsys):
    parser = Parser(prog="tool")
    add_flags(parser, Model)
    assert flag_values(Model, parser.parse_args(["--cpu", "many"])) == {"cpu": "many"}
    assert "(default: 4)" in parser.format_help()
    assert "did you mean" in refusal(capsys, "--hiden", "1", cls=Model)


def test_the_sweep_and_its_folder_come_from_the_environment_at_the_time(monkeypatch):
    monkeypatch.setenv("DITK_RAY_STORAGE", "/some%where")
    assert read("mine", cls=SweepCommand).storage_path == Path("/some%where")
    parser = Parser(prog="tool")
    add_flags(parser, SweepCommand)
    assert "(default: /some%where;" in parser.format_help()


def test_a_server_listens_here_alone_unless_told(capsys):
    given = read(cls=ServerCommand)
    assert (given.host, given.port, given.open) == ("127.0.0.1", None, False)
    assert "from 1 to 65535" in refusal(capsys, "--port", "0", cls=ServerCommand)


def test_the_cluster_can_be_put_behind_another_command():
    settings = KubeSettings(Path("my config"), None, "rl")
    assert settings.as_flags() == " --kubeconfig 'my config' --namespace rl"
    assert KubeSettings().as_flags() == ""


def test_an_address_chooses_the_cluster(monkeypatch):
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    assert RaySettings().chosen_mode() == "local"
    assert RaySettings(ray_address="a:1").chosen_mode() == "remote"
    monkeypatch.setenv("RAY_ADDRESS", "a:1")
    assert RaySettings().chosen_mode() == "remote"
    assert RaySettings(run_mode="local").chosen_mode() == "local"
    with pytest.raises(BadConfigError, match="goes with --run_mode remote"):
        RaySettings(run_mode="local", ray_address="a:1").chosen_mode()


class Loud(Command):
    """Make it.

      tool make mine

    Exit code: 7 if it is loud.
    """

    name: str = option("what to call it", positional=True)
    is_loud: bool = option("say more", False, flags=["--loud"])

    def run(self) -> int:
        return 7 if self.is_loud else 0


def test_a_command_is_loaded_when_it_is_chosen(capsys):
    parser = Parser(prog="tool")
    table = {"make": ("tests.cli.test_flags:Loud", "make it"), "break": ("no.such:THING", "x")}
    add_commands(parser, table)
    given = parser.parse_args(["make", "mine", "--loud"])
    assert given.run(given) == 7
    with pytest.raises(SystemExit):
        parser.parse_args(["make", "--help"])
    shown = capsys.readouterr().out
    assert "\nMake it.\n" in shown
    assert shown.endswith("examples:\n  tool make mine\n\nExit code: 7 if it is loud.\n")
    assert "break" in parser.format_help()
