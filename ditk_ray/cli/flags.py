"""Commands: dataclasses whose fields are flags, whose docstring is the help, and which run.

The fields are declared by `config.options.option`, or are those of a pydantic model. `cli.main`
has the table of all commands and loads the chosen one alone.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import sys
import textwrap
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Literal, NoReturn, Self, get_args, get_origin

from ditk_ray.config.options import KubeSettings, StorageSettings, option, options_of


class Parser(argparse.ArgumentParser):
    """argparse with underscores and dashes alike, no abbreviations, and suggestions.

    With `fill`, the parser of a command is empty until it is used, and is filled by it then.
    """

    def __init__(self, fill: Callable[[Parser], None] | None = None, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)
        self._fill = fill

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, after writing every flag with underscores; refuse what is unknown."""
        fill, self._fill = self._fill, None
        if fill is not None:
            fill(self)
        given = list(sys.argv[1:] if args is None else args)
        end = given.index("--") if "--" in given else len(given)
        flags = [_with_underscores(item) for item in given[:end]]
        parsed, unknown = super().parse_known_args(flags + given[end:], namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}{self._suggestion(unknown[0])}")
        return parsed, []

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line and exit with code 2."""
        self.exit(2, f"error: {message}\nsee `{self.prog} --help`\n")

    def _suggestion(self, wrong: str) -> str:
        close = difflib.get_close_matches(wrong, self._option_string_actions, n=1, cutoff=0.5)
        text = f"; did you mean {close[0]}?" if close else ""
        is_for_job = self.usage is not None and " -- " in self.usage
        return f"{text}; a job's own flags go after --" if is_for_job else text


@typing.dataclass_transform(frozen_default=True, kw_only_default=True)
class Command:
    """A frozen dataclass; its docstring is a description, examples, and more paragraphs."""

    usage: ClassVar[str | None] = None

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, kw_only=True)(cls)

    @classmethod
    def fill(cls, parser: Parser) -> None:
        explain(parser, cls.__doc__)
        parser.usage = cls.usage
        add_flags(parser, cls)
        parser.set_defaults(run=lambda given: cls.read(given).run())

    @classmethod
    def read(cls, given: argparse.Namespace) -> Self:
        return cls(**flag_values(cls, given))

    def run(self) -> int:
        """Do it, and return the exit code."""
        raise NotImplementedError


@dataclass(frozen=True)
class Family:
    """Commands below a common name: `.module:Class` and a line of help for each."""

    commands: Mapping[str, tuple[str, str]]
    doc: str

    def fill(self, parser: Parser) -> None:
        explain(parser, self.doc)
        add_commands(parser, self.commands)


def explain(parser: Parser, doc: str | None) -> None:
    """Make the help of a docstring: a line, a paragraph of examples, and more."""
    parser.description, _, rest = inspect.cleandoc(doc or "").partition("\n\n")
    examples, _, more = rest.partition("\n\n")
    examples = textwrap.indent(textwrap.dedent(examples), "  ")
    parser.epilog = f"examples:\n{examples}\n\n{more}"


def add_commands(parser: Parser, table: Mapping[str, tuple[str, str]]) -> None:
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, (target, line) in table.items():
        commands.add_parser(name, help=line, fill=partial(_load, target))


def _load(target: str, parser: Parser) -> None:
    module, _, attribute = target.partition(":")
    found: type[Command] | Family = getattr(importlib.import_module(module, __package__), attribute)
    found.fill(parser)


class _Declared:
    """A field that is a flag, or holds another class with such fields."""

    def __init__(
        self, name: str, hint: Any, default: Any, settings: Mapping[str, Any], is_checked: bool
    ) -> None:
        self.name, self.default, self.settings = name, default, settings
        self.is_checked = is_checked  # by the model itself, which reads the text
        self.is_optional = get_origin(hint) in (types.UnionType, typing.Union)
        kind = get_args(hint)[0] if self.is_optional else hint
        self.container = get_origin(kind) if get_origin(kind) in (list, tuple) else None
        self.kind = get_args(kind)[0] if self.container else kind
        self.is_enum = isinstance(self.kind, type) and issubclass(self.kind, Enum)
        has_fields = is_dataclass(kind) or hasattr(kind, "model_fields")
        self.is_nested = "help" not in settings and has_fields


def add_flags(
    parser: Any, cls: type, *, group: str = "", action: type[argparse.Action] | None = None
) -> None:
    """Add a flag, or a positional, for each field of `cls` that is declared as one.

    In a dataclass these are fields that were made by `option`; in a pydantic model those with
    a description, whose `json_schema_extra` may have the other settings of `option`. A field
    whose type is such a class itself is expanded in place. A flag that is not given is not in
    the namespace. `group` is for fields without one; `action` is for all of them.
    """
    for one in _declared(cls):
        title = one.settings.get("group") or group
        if one.is_nested:
            add_flags(parser, one.kind, group=title, action=action)
        else:
            _add_flag(_group(parser, title), one, action)


def flag_values(cls: type, given: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of `cls` that the arguments have set."""
    values = {}
    for one in _declared(cls):
        if one.is_nested:
            values[one.name] = read_flags(one.kind, given)
        elif hasattr(given, one.name):
            value = getattr(given, one.name)
            convert = one.container or (one.kind if one.is_enum else None)
            values[one.name] = convert(value) if convert and not one.is_checked else value
    return values


def read_flags(cls: type, given: argparse.Namespace) -> Any:
    """Return the instance of `cls` that the arguments make; its own defaults fill the rest."""
    return cls(**flag_values(cls, given))


def _declared(cls: Any) -> list[_Declared]:
    found = []
    if hasattr(cls, "model_fields"):
        for name, info in cls.model_fields.items():
            settings = dict(info.json_schema_extra or {})
            if info.description is not None:
                settings["help"] = info.description
            default = None if info.is_required() else info.get_default(call_default_factory=True)
            found.append(_Declared(name, info.annotation, default, settings, True))
    else:
        hints = typing.get_type_hints(cls)
        for item in fields(cls):
            default = item.default if item.default is not MISSING else None
            if item.default_factory is not MISSING:
                default = item.default_factory()
            found.append(_Declared(item.name, hints[item.name], default, item.metadata, False))
    return [one for one in found if "help" in one.settings or one.is_nested]


def _group(parser: Any, title: str) -> Any:
    if not title:
        return parser
    groups = (one for one in parser._action_groups if one.title == title)
    return next(groups, None) or parser.add_argument_group(title)


def _add_flag(target: Any, one: _Declared, action: type[argparse.Action] | None) -> None:
    given = one.settings.get
    names = [one.name] if given("positional") else given("flags") or [f"--{one.name}"]
    shown = str(one.default).replace("%", "%%")
    text = str(given("help")).replace("%(default)s", shown)
    made: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS, **_reading(one)}
    if not given("positional"):
        made |= {"dest": one.name, "required": bool(given("required"))}
    if action is not None:
        made |= {"action": action} | ({"nargs": 0} if one.kind is bool else {})
    if given("metavar") or given("positional"):
        made["metavar"] = given("metavar") or one.name.upper()
    target.add_argument(*names, **made)


def _reading(one: _Declared) -> dict[str, Any]:
    given = one.settings.get
    if one.kind is bool and not one.container:
        return {"action": "store_true"}
    made: dict[str, Any] = {}
    if given("nargs"):
        made["nargs"] = given("nargs")
    elif one.container:
        made |= {"nargs": "*"} if given("positional") else {"action": "append"}
    elif given("positional") and (one.is_optional or one.default is not None):
        made["nargs"] = "?"
    if get_origin(one.kind) is Literal:
        made["choices"] = list(get_args(one.kind))
    elif one.is_enum:
        made["choices"] = [str(item.value) for item in one.kind]
    elif parse := given("parse"):
        made["type"] = _explained(parse)
    elif one.kind in (int, float, Path) and not one.is_checked:
        made["type"] = one.kind
    return made


def _explained(parse: Callable[[str], Any]) -> Callable[[str], Any]:

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def _with_underscores(argument: str) -> str:
    if not argument.startswith("--") or argument == "--":
        return argument
    flag, equals, value = argument.partition("=")
    return "--" + flag[2:].replace("-", "_") + equals + value


class StorageCommand(StorageSettings, Command):
    """A command about sweeps."""


class SweepCommand(StorageCommand):
    """A command about one recorded sweep."""

    sweep: str = option("a sweep's name or folder", positional=True)


Format = Literal["table", "json"]
ObjectFormat = Literal["table", "json", "yaml"]


def format_option(help: str = "output format", group: str = "") -> Any:
    """Declare the field `format`, a `Format` or an `ObjectFormat`."""
    return option(help, "table", group=group)


class KubeCommand(Command):
    """A command about what is on Kubernetes."""

    kube: KubeSettings = options_of(KubeSettings)


class ObjectCommand(KubeCommand):
    """A command that prints objects of Kubernetes."""

    format: ObjectFormat = format_option()
