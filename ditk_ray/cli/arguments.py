"""An argument parser that takes `--a_b` and `--a-b` alike, and helps with typos."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """argparse with underscores and dashes alike, no abbreviations, and suggestions."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse, after writing every flag with underscores."""
        given = list(sys.argv[1:] if args is None else args)
        end = given.index("--") if "--" in given else len(given)
        flags = [_with_underscores(item) for item in given[:end]]
        return super().parse_known_args(flags + given[end:], namespace)

    def error(self, message: str) -> NoReturn:
        """Say what is wrong in one line and leave with code 2."""
        self.exit(2, f"error: {message}{self._suggestion(message)}\nsee `{self.prog} --help`\n")

    def _suggestion(self, message: str) -> str:
        wrong = message.partition("unrecognized arguments: ")[2].split()
        if not wrong:
            return ""
        if wrong[0].partition("=")[0] in self._flags():
            return "; that is a flag of another command. What a job is given goes after --"
        close = difflib.get_close_matches(wrong[0], self._flags(), n=1, cutoff=0.5)
        return f"; did you mean {close[0]}?" if close else ""

    def _flags(self) -> list[str]:
        flags = list(self._option_string_actions)
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                flags += [name for parser in action.choices.values() for name in parser._flags()]
        return flags


def seconds(text: str) -> float:
    """Read a length of time from an argument, such as `10m`."""
    from ditk_ray.config.quantities import parse_seconds

    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _with_underscores(argument: str) -> str:
    if not argument.startswith("--") or argument == "--":
        return argument
    flag, equals, value = argument.partition("=")
    return "--" + flag[2:].replace("-", "_") + equals + value
