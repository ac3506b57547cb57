"""`ditk-ray report`: write a sweep's report, one file to look at."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from ditk_ray.cli.sweep_arguments import add_sweep
from ditk_ray.errors import BadConfigError, Problem

_EXAMPLES = """\
examples:
  ditk-ray report my_sweep --open
  ditk-ray report my_sweep --output for_my_colleague.html

The file needs no network and no other file. A sweep writes it by itself at its end;
while it runs, this command shows how far it is.
"""


def add_command(commands: Any) -> None:
    """Add `report` to the parser's commands."""
    parser = commands.add_parser(
        "report",
        help="write a sweep's report.html",
        description="Write the report of a sweep: one file that opens in any browser.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        help="where to write it (default: report.html in the sweep's folder)",
    )
    parser.add_argument("--open", action="store_true", help="open it in a browser")


def run(given: argparse.Namespace) -> int:
    """Write the report, print where it is, and return the exit code."""
    from ditk_ray.cli.browser import open_page
    from ditk_ray.cli.output import short_path
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.tracking.record import read_record

    folder = find_sweep(given.sweep, given.storage_path)
    read_record(folder)  # before plotting libraries are imported: a mistake answers at once
    from ditk_ray.report.page import write_report

    written = write_report(folder, _target(given.output))
    print(short_path(written), flush=True)
    if given.open:
        open_page(written.resolve().as_uri())
    return 0


def _target(output: Path | None) -> Path | None:
    if output is None:
        return None
    target = output.expanduser()
    if target.exists() and not target.is_file():
        # The report takes the place of what is there: never that of a folder or a device.
        raise BadConfigError(Problem(f"--output {output}", "is no file", "give a file's name"))
    if not target.absolute().parent.is_dir():
        raise BadConfigError(Problem(f"--output {output}", "its folder does not exist"))
    return target
