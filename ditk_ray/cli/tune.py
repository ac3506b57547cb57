"""`ditk-ray tune`: run a sweep, show what it would do, or list what there is."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import positive
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.tracking.folders import DEFAULT_STORAGE

if TYPE_CHECKING:
    from ditk_ray.sweep.setup import SweepOptions
    from ditk_ray.trial.warm_node import WarmNode

_EXAMPLES = """\
examples:
  ditk-ray tune --list
  ditk-ray tune --cfg_class CartpoleDQNJobCfg
  ditk-ray tune --cfg_class CartpoleDQNJobCfg --plan
  ditk-ray tune --cfg_file my_job.py --num_samples 20 --set policy.learn.batch_size=128

Flags may be written with dashes, too: --num-samples 20.
Exit code: 0 if the sweep finished with at least one successful trial, 1 if it
did not, 2 if the input is wrong (then nothing was started), 130 after Ctrl-C.
"""


def add_command(commands: Any) -> None:
    """Add `tune` to the parser's commands."""
    parser = commands.add_parser(
        "tune", help="run a sweep", description="Run a sweep of a JobCfg.", epilog=_EXAMPLES
    )
    parser.set_defaults(run=run)
    what = parser.add_argument_group("what to run")
    what.add_argument("--cfg_class", metavar="NAME", help="the JobCfg class")
    what.add_argument(
        "--cfg_file", metavar="FILE", type=Path, help="its file (default: found in job_cfgs/)"
    )
    what.add_argument("--list", action="store_true", help="list the JobCfg classes and leave")
    what.add_argument("--plan", action="store_true", help="show what would run, and start nothing")

    where = parser.add_argument_group("where to run it")
    where.add_argument(
        "--run_mode",
        choices=["local", "remote"],
        help="a Ray of its own on this machine, or a cluster (default: local, "
        "or remote if an address is given or RAY_ADDRESS is set)",
    )
    where.add_argument("--ray_address", metavar="HOST:PORT", help="the cluster's address")
    where.add_argument(
        "--num_workers_per_node",
        metavar="N",
        type=positive,
        help="divide each node among N trials",
    )
    where.add_argument(
        "--storage_path",
        metavar="DIR",
        type=Path,
        default=DEFAULT_STORAGE,
        help="where sweeps are kept (default: %(default)s)",
    )
    where.add_argument("--name", help="the sweep's name (default: the class and the time)")

    record = parser.add_argument_group("how to record it in MLflow")
    record.add_argument(
        "--mlflow_uri",
        metavar="URI",
        help="a server or a database, or none (default: MLFLOW_TRACKING_URI, else a store of "
        "its own in the storage path, which `ditk-ray ui` shows)",
    )
    record.add_argument(
        "--mlflow_experiment", metavar="NAME", help="the experiment (default: the class)"
    )
    record.add_argument(
        "--mlflow_checkpoints",
        choices=["none", "best", "all"],
        default="best",
        help="keep the best checkpoint of no trial, the best one or all (default: best)",
    )

    change = parser.add_argument_group("what to change in the JobCfg")
    change.add_argument("--num_samples", metavar="N", type=positive)
    change.add_argument("--metric", metavar="NAME")
    change.add_argument("--mode", choices=["max", "min"])
    change.add_argument(
        "--repeat_run_count", metavar="N", type=positive, help="run each trial on N seeds"
    )
    change.add_argument(
        "--seed",
        type=int,
        metavar="N",
        help="for the sampling and the trials (a searcher of your own has its own)",
    )
    change.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="PATH=VALUE",
        dest="values",
        help="set a value of the config in all trials (+PATH=VALUE adds a new key; repeatable)",
    )
    change.add_argument(
        "--stopper", metavar="RULE|CLASS", help="end trials early, e.g. 'eval_value>=195'"
    )

    output = parser.add_argument_group("what to see")
    output.add_argument(
        "--progress_reporter", metavar="auto|live|plain|none|CLASS", help="(default: auto)"
    )
    output.add_argument(
        "--format", choices=["table", "json"], default="table", help="of what is printed at the end"
    )


def run(given: argparse.Namespace) -> int:
    """Do what the arguments say and return the exit code."""
    from ditk_ray.cli import output

    if given.list:
        from ditk_ray.config.job_files import list_jobs

        output.print_jobs(list_jobs(given.cfg_file), given.format)
        return 0
    from ditk_ray.config.job_files import find_job
    from ditk_ray.sweep.ray_session import quiet_ray

    find_job(given.cfg_class, given.cfg_file)  # before Ray is imported: a typo answers at once
    from ditk_ray.trial.warm_node import WarmNode

    quiet_ray()
    output.note("importing DI-engine and Ray (some seconds)")
    with WarmNode() as warm:
        return _tune(given, warm)


def _tune(given: argparse.Namespace, warm: WarmNode) -> int:
    from ditk_ray.cli import output
    from ditk_ray.config.job_files import load_job

    job = load_job(given.cfg_class, given.cfg_file, _changes(given))
    from ditk_ray.sweep.setup import prepared_sweep

    with prepared_sweep(job, _options(given), warm) as sweep:
        if given.plan:
            output.print_plan(sweep, given.format)
            return 0
        from ditk_ray.cli.display import build_display
        from ditk_ray.sweep.run import run_sweep

        display, reporter = build_display(sweep)
        outcome = run_sweep(sweep, display, reporter, output.note)
    output.print_summary(outcome, given.format)
    if outcome.record.status == "interrupted":
        return 130
    return 0 if outcome.succeeded else 1


def _changes(given: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {
        key: getattr(given, key)
        for key in ("num_samples", "metric", "mode", "stopper", "progress_reporter")
        if getattr(given, key) is not None
    }
    if given.repeat_run_count is not None:
        changes["seeds"] = given.repeat_run_count
    changes["set"] = dict(_assignment(text) for text in given.values)
    return changes


def _options(given: argparse.Namespace) -> SweepOptions:
    from ditk_ray.sweep.setup import SweepOptions
    from ditk_ray.tracking.store import chosen_uri

    mode = given.run_mode
    if mode is None:
        mode = "remote" if given.ray_address or os.environ.get("RAY_ADDRESS") else "local"
    if mode == "local" and given.ray_address:
        hint = "leave --run_mode out, or say remote"
        raise BadConfigError(Problem("--ray_address", "goes with --run_mode remote", hint))
    return SweepOptions(
        name=given.name,
        storage_path=given.storage_path,
        run_mode=mode,
        ray_address=given.ray_address,
        num_workers_per_node=given.num_workers_per_node,
        seed=given.seed,
        mlflow_uri=chosen_uri(given.mlflow_uri),
        mlflow_experiment=given.mlflow_experiment,
        mlflow_checkpoints=given.mlflow_checkpoints,
        command=tuple(sys.argv),
    )


def _assignment(text: str) -> tuple[str, Any]:
    """Read `a.b=VALUE`; the value is Python or JSON, else a string."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip("+. "):
        raise BadConfigError(Problem(f"--set {text}", "has to be PATH=VALUE"))
    words = {"true": True, "false": False, "null": None, "none": None}
    if value.lower() in words:
        return path.strip(), words[value.lower()]
    import ast

    try:
        return path.strip(), ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return path.strip(), value
