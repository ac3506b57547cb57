"""`ditk-ray best`: the best trial of a sweep, and how to run it again."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_format, add_sweep, positive
from ditk_ray.errors import DitkRayError

if TYPE_CHECKING:
    from ditk_ray.tracking.record import SweepRecord, TrialRecord

_EXAMPLES = """\
examples:
  ditk-ray best my_sweep
  ditk-ray best my_sweep --top 5
  ditk-ray best my_sweep --format json

Exit code: 0, or 1 if no trial has a score (yet).
"""


def add_command(commands: Any) -> None:
    """Add `best` to the parser's commands."""
    parser = commands.add_parser(
        "best",
        help="show a sweep's best trial",
        description="Show the best trial of a sweep, its parameters and its files, "
        "also while the sweep runs.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser)
    parser.add_argument("--top", metavar="N", type=positive, help="a table of the N best trials")
    add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Print what the arguments ask for and return the exit code."""
    from ditk_ray.cli import output
    from ditk_ray.config.jsonable import json_text
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.tracking.record import read_record

    record = read_record(find_sweep(given.sweep, given.storage_path))
    scored = [trial for trial in output.ranked(record) if record.score(trial) is not None]
    if not scored:
        count = output.count_line(record)
        raise DitkRayError(f"{record.name}: no trial has a score ({record.status}; {count})")
    wanted = scored[: given.top or 1]
    if given.format == "json":
        described = [_describe(record, trial) for trial in wanted]
        print(json_text(described if given.top else described[0], indent=1))
    elif given.top:
        output.console().print(output.trial_table(record, wanted))
    else:
        _print(record, wanted[0])
    return 0


def _describe(record: SweepRecord, trial: TrialRecord) -> dict[str, Any]:
    """Return all that is known of a trial; files that are not there are null."""
    files = _files(trial)
    return {
        "sweep": record.name,
        "metric": record.metric,
        "mode": record.mode,
        "score": record.score(trial),
        "env_step": trial.best_metrics.get("env_step"),
        "objectives": [vars(objective) for objective in record.objectives],
        "pareto": [item.id for item in record.pareto_set()],
        **vars(trial),
        "files": files,
        "command": _command(files["config"]),
    }


def _files(trial: TrialRecord) -> dict[str, Any]:
    from ditk_ray.tracking.artifacts import best_checkpoints
    from ditk_ray.trial.files import CONFIG_FILE, METRICS_FILE

    folder = Path(trial.dir)
    names = {"config": CONFIG_FILE, "metrics": METRICS_FILE}
    found = {key: folder / name for key, name in names.items()}
    return {
        **{key: path if path.is_file() else None for key, path in found.items()},
        "results": sorted(folder.glob("result*.pkl")),
        "checkpoints": [item.file for item in best_checkpoints(folder)],
    }


def _command(config: Path | None) -> str | None:
    from ditk_ray.cli.output import short_path

    return f"python {shlex.quote(short_path(config))}" if config else None


def _print(record: SweepRecord, trial: TrialRecord) -> None:
    from rich.text import Text

    from ditk_ray.cli.output import console, pareto_view, score_line, short_path
    from ditk_ray.config.jsonable import json_text

    out = console()
    out.print(Text(f"{record.name}: {score_line(record, trial)} ({trial.state})", style="green"))
    for name, value in trial.params.items():
        out.print(Text(f"    {name} = {json_text(value)}"), soft_wrap=True)
    files = _files(trial)
    shown = {"config": [files["config"]], "metrics": [files["metrics"]]}
    shown |= {"result": files["results"], "checkpoint": files["checkpoints"]}
    for title, paths in shown.items():
        for path in filter(None, paths):
            out.print(Text(f"{title:<10}  {short_path(path)}"), soft_wrap=True)
    command = _command(files["config"])
    if command:
        out.print(Text(f"run it again: {command}"), soft_wrap=True)
    if record.more_objectives:
        out.print(pareto_view(record))
