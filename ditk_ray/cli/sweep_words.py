"""The words of a sweep that runs elsewhere, read here as `tune` will read them there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ditk_ray.cli import tune
from ditk_ray.cli.arguments import Parser
from ditk_ray.config.sweep_names import require_sweep_name
from ditk_ray.errors import BadConfigError, Problem


def check_sweep(words: Sequence[str]) -> None:
    """Raise BadConfigError if `ditk-ray` would not take these words, which begin with tune.

    What it says before it looks for the JobCfg class is said here; the classes themselves may
    be in an image alone. Words of another command are left to who wants those of a sweep.
    """
    if not words or words[0] != "tune":
        return
    parser = _WordsParser(prog="ditk-ray")
    tune.add_command(parser.add_subparsers())
    given = parser.parse_args(words)
    if given.name is not None:
        require_sweep_name(given.name)
    is_looking = given.list or given.list_searchers or given.list_schedulers
    if given.cfg_class is None and given.cfg_file is None and not is_looking:
        raise BadConfigError(Problem("--cfg_class", "is needed to say which job"))


class _WordsParser(Parser):
    """Raises what is wrong, and has no help: that would print, and end this program."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, add_help=False)

    def error(self, message: str) -> NoReturn:
        what = f"{message}{self._suggestion(message)}"
        raise BadConfigError(Problem("the words after --", what, "see `ditk-ray tune --help`"))
