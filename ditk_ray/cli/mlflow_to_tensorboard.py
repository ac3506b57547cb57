"""`ditk-ray mlflow-to-tensorboard`: the runs of an MLflow experiment as event files."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_format, positive
from ditk_ray.config.storage import default_storage
from ditk_ray.errors import DitkRayError

if TYPE_CHECKING:
    from ditk_ray.tracking.tensorboard_export import RunExport

_EXAMPLES = """\
examples:
  ditk-ray mlflow-to-tensorboard --uri http://HOST:5000 --experiment-name walker --download-dir tb
  tensorboard --logdir tb

Run it again to go on after Ctrl-C or a failure, or to fetch what is new: runs that
have ended and are complete are not downloaded again.
Exit code: 0 if every run is there, 1 if one failed or there is none, 2 if the input
is wrong, 130 after Ctrl-C.
"""

_SPEAK_SECONDS = 5.0


def add_command(commands: Any) -> None:
    """Add `mlflow-to-tensorboard` to the parser's commands."""
    parser = commands.add_parser(
        "mlflow-to-tensorboard",
        help="turn an MLflow experiment into event files",
        description="Write the runs of an MLflow experiment as TensorBoard event files.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--uri",
        help="the MLflow server or store (default: MLFLOW_TRACKING_URI, "
        "else the store in the results' folder)",
    )
    parser.add_argument(
        "--storage_path",
        metavar="DIR",
        type=Path,
        default=default_storage(),
        help="the results' folder (default: %(default)s)",
    )
    parser.add_argument("--experiment_name", metavar="NAME", required=True)
    parser.add_argument(
        "--download_dir", metavar="DIR", type=Path, required=True, help="where the files go"
    )
    parser.add_argument(
        "--workers",
        metavar="N",
        type=positive,
        default=4,
        help="runs that are downloaded at once (default: %(default)s)",
    )
    add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Export what the arguments say and return the exit code."""
    from ditk_ray.tracking.store import calm_mlflow

    calm_mlflow()
    logging.getLogger("urllib3").setLevel(logging.ERROR)  # what fails in the end is said
    from ditk_ray.cli.output import note
    from ditk_ray.tracking.tensorboard_export import Outcome, TensorboardExport

    export = TensorboardExport(_uri(given), given.experiment_name, given.download_dir)
    total = len(export)
    done: list[RunExport] = []

    def take(result: RunExport) -> None:
        done.append(result)
        show(len(done))

    try:
        with _progress(total) as show:
            export.run(given.workers, take)
    except (KeyboardInterrupt, DitkRayError):
        note(f"{len(done)} of {total} runs were done; the same command goes on from there")
        raise
    _print_summary(given, done)
    return 1 if any(item.outcome is Outcome.FAILED for item in done) else 0


def _uri(given: argparse.Namespace) -> str:
    from ditk_ray.tracking.store import embedded_uri

    uri: str | None = given.uri or os.environ.get("MLFLOW_TRACKING_URI")
    return uri or embedded_uri(given.storage_path)


@contextlib.contextmanager
def _progress(total: int) -> Iterator[Callable[[int], None]]:
    """Show on stderr how many runs are done: a bar on a terminal, else lines."""
    if not sys.stderr.isatty():
        yield _lines(total)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress

    with Progress(
        BarColumn(), MofNCompleteColumn(), console=Console(stderr=True), transient=True
    ) as bar:
        task = bar.add_task("runs", total=total)
        yield lambda number: bar.update(task, completed=number)


def _lines(total: int) -> Callable[[int], None]:
    """Return what says now and then how many runs are done."""
    from ditk_ray.cli.output import note

    spoke = time.monotonic()

    def show(number: int) -> None:
        nonlocal spoke
        if time.monotonic() - spoke > _SPEAK_SECONDS:
            spoke = time.monotonic()
            note(f"{number} of {total} runs")

    return show


def _print_summary(given: argparse.Namespace, done: list[RunExport]) -> None:
    counts = Counter(str(item.outcome) for item in done)
    points = sum(item.points for item in done)
    if given.format == "json":
        from ditk_ray.config.jsonable import json_text

        runs = [vars(item) for item in done]
        summary = {"experiment": given.experiment_name, "download_dir": given.download_dir}
        print(json_text({**summary, "counts": counts, "points": points, "runs": runs}, indent=1))
        return
    for item in done:
        if item.error:
            print(f"{item.name} ({item.run_id}) failed: {item.error}")
    print(
        f"{given.experiment_name}: {len(done)} runs with {points} points: "
        f"{counts['written']} written, {counts['kept']} were complete already, "
        f"{counts['failed']} failed"
    )
    print(f"look at them with: tensorboard --logdir {shlex.quote(str(given.download_dir))}")
