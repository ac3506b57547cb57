"""Commands of `ditk-ray` inside the tests' own process, where Ray is imported already."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from typing import IO
from unittest import mock

from ditk_ray.cli.main import main

DITK_RAY = str(Path(sys.executable).with_name("ditk-ray"))


def run_inline(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str]
) -> CompletedProcess[str]:
    """Run a command as a process in `folder` would, and return what such a process leaves."""
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        with (
            contextlib.chdir(folder),
            mock.patch.dict(os.environ, environment, clear=True),
            mock.patch.object(sys, "argv", [DITK_RAY, *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = _exit_code(arguments)
        return CompletedProcess([*arguments], code, _text(out), _text(err))


def _exit_code(arguments: Sequence[str]) -> int:
    try:
        return main(arguments)
    except SystemExit as left:  # by argparse
        return int(left.code or 0)


def _text(file: IO[str]) -> str:
    file.flush()
    file.seek(0)
    return file.read()
