"""`ditk-ray sync`: send a sweep's records to MLflow."""

from __future__ import annotations

import argparse
from typing import Any

from ditk_ray.cli.sweep_arguments import add_format, add_sweep

_EXAMPLES = """\
examples:
  ditk-ray sync my_sweep                                   send what its store missed
  ditk-ray sync my_sweep --mlflow_uri http://host:5000     record it there, too
"""


def add_command(commands: Any) -> None:
    """Add `sync` to the parser's commands."""
    parser = commands.add_parser(
        "sync",
        help="send a sweep's records to MLflow",
        description="Send to MLflow what a sweep could not while it ran, or record it in "
        "another store. Doing it again changes nothing.",
        epilog=_EXAMPLES,
    )
    parser.set_defaults(run=run)
    add_sweep(parser)
    parser.add_argument("--mlflow_uri", metavar="URI", help="another store than the sweep's own")
    add_format(parser)


def run(given: argparse.Namespace) -> int:
    """Do what the arguments say and return the exit code."""
    from ditk_ray.cli import output
    from ditk_ray.config.jsonable import json_text
    from ditk_ray.provenance.masking import mask_text
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.tracking.store import calm_mlflow, chosen_uri, resolved_uri

    folder = find_sweep(given.sweep, given.storage_path)
    uri = chosen_uri(given.mlflow_uri) if given.mlflow_uri else None
    calm_mlflow()
    from ditk_ray.tracking.sync import sync

    state = sync(folder, uri, lambda share: output.note(f"sent {share:.0%}"))
    where = mask_text(resolved_uri(state.uri, folder))
    if given.format == "json":
        shown = {"mlflow_uri": where, "runs": len(state.runs), "refused": state.refused}
        print(json_text({"sweep": folder.name, **shown}, indent=1))
    else:
        print(f"all of {folder.name} is in {where}: {len(state.runs)} runs")
    if state.refused:
        output.note(f"MLflow refused {state.refused} records")
    return 1 if state.refused else 0
