"""`ditk-ray tune`: run a sweep, show what it would do, or list what there is."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.cluster_arguments import add_cluster
from ditk_ray.cli.ray_arguments import add_ray, chosen_run_mode
from ditk_ray.cli.sweep_arguments import positive
from ditk_ray.config.storage import default_storage
from ditk_ray.errors import BadConfigError, Problem

if TYPE_CHECKING:
    from ditk_ray.sweep.run import SweepOutcome
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

_CHANGES = (
    *("num_samples", "metric", "mode", "seeds_aggregate", "stopper", "progress_reporter"),
    *("searcher", "scheduler", "warm_start", "backend", "dijob_template"),
)
"""The arguments that are attributes of a `JobCfg`."""


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
    what.add_argument(
        "--list_searchers", action="store_true", help="list what can choose trials, and leave"
    )
    what.add_argument(
        "--list_schedulers", action="store_true", help="list what can end them early, and leave"
    )
    what.add_argument("--plan", action="store_true", help="show what would run, and start nothing")

    where = parser.add_argument_group("where to run it")
    add_ray(where)
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
        default=default_storage(),
        help="where sweeps are kept (default: $DITK_RAY_STORAGE, else ditk_ray_results; in a "
        "submitted job ~/ditk_ray_results)",
    )
    where.add_argument("--name", help="the sweep's name (default: the class and the time)")
    where.add_argument(
        "--resume_existing",
        action="store_true",
        help="go on with the sweep --name if it is there already, and be content if it has "
        "finished: for what is started again after a crash (RayJob, systemd, batch queues)",
    )

    jobs = parser.add_argument_group("to run trials as DIJobs on Kubernetes")
    jobs.add_argument("--backend", choices=["serial", "dijob"], help="(default: serial)")
    jobs.add_argument(
        "--dijob_template", metavar="FILE", type=Path, help="the YAML of a DIJob to make trials of"
    )
    add_cluster(jobs)
    jobs.add_argument(
        "--keep_dijobs",
        choices=["none", "failed", "all"],
        default="none",
        help="leave no jobs in the cluster that have ended, those that failed, or all "
        "(default: none; their logs are kept in any case)",
    )

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
    change.add_argument("--metric", metavar="NAME[,NAME]", help="what is optimised")
    change.add_argument("--mode", metavar="max|min[,max|min]", help="for all metrics, or for each")
    change.add_argument(
        "--repeat_run_count", metavar="N", type=positive, help="run each trial on N seeds"
    )
    change.add_argument(
        "--seeds_aggregate",
        choices=["mean", "median", "worst", "iqm"],
        help="what a trial's score is of its seeds' scores (iqm: the interquartile mean)",
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
    change.add_argument("--searcher", metavar="NAME", help="what chooses the trials")
    change.add_argument(
        "--searcher_opt", action="append", default=[], metavar="NAME=VALUE", help="a setting of it"
    )
    change.add_argument("--scheduler", metavar="NAME", help="what ends or changes running trials")
    change.add_argument(
        "--scheduler_opt", action="append", default=[], metavar="NAME=VALUE", help="a setting of it"
    )
    change.add_argument(
        "--warm_start", metavar="SWEEP", help="an earlier sweep that the searcher learns from"
    )
    change.add_argument(
        "--stopper",
        metavar="RULE|CLASS",
        help="end trials early, e.g. 'eval_value>=195 or plateau(eval_value, 5)', "
        "or the sweep: 'sweep.time>=2h'",
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
    if given.list_searchers or given.list_schedulers:
        return _list_drivers(given)
    from ditk_ray.cluster.ray_session import quiet_ray
    from ditk_ray.config.job_files import find_job

    # Before Ray is imported: a typo answers at once.
    entry = find_job(given.cfg_class, given.cfg_file)
    quiet_ray()
    if given.resume_existing and not given.plan:
        from ditk_ray.cli.resume import resume_existing

        code = resume_existing(given, entry)
        if code is not None:
            return code
    from ditk_ray.trial.warm_node import WarmNode

    output.note("importing DI-engine and Ray (some seconds)")
    with WarmNode() as warm:
        return _tune(given, warm)


def _tune(given: argparse.Namespace, warm: WarmNode) -> int:
    from ditk_ray.cli import output
    from ditk_ray.config.job_files import load_job

    job = load_job(given.cfg_class, given.cfg_file, _changes(given))
    from ditk_ray.sweep.setup import prepared_sweep

    with prepared_sweep(job, _options(given), warm) as sweep:
        if sweep.parts.note:
            output.note(sweep.parts.note)
        if given.plan:
            output.print_plan(sweep, given.format)
            return 0
        from ditk_ray.cli.display import build_display
        from ditk_ray.sweep.run import run_sweep

        display, reporter = build_display(sweep)
        outcome = run_sweep(sweep, display, reporter, output.note)
    return finish(outcome, given.format)


def finish(outcome: SweepOutcome, form: str) -> int:
    """Print how a sweep ended and return the exit code."""
    from ditk_ray.cli import output

    output.print_summary(outcome, form)
    if outcome.record.status == "interrupted":
        return 130
    return 0 if outcome.succeeded else 1


def _list_drivers(given: argparse.Namespace) -> int:
    from ditk_ray.cli.driver_tables import print_schedulers, print_searchers
    from ditk_ray.cluster.ray_session import quiet_ray

    quiet_ray()
    if given.list_searchers:
        print_searchers(given.format)
    if given.list_schedulers:
        print_schedulers(given.format)
    return 0


def _changes(given: argparse.Namespace) -> dict[str, Any]:
    changes: dict[str, Any] = {
        key: getattr(given, key) for key in _CHANGES if getattr(given, key) is not None
    }
    if given.repeat_run_count is not None:
        changes["seeds"] = given.repeat_run_count
    changes["set"] = dict(_assignment("--set", text) for text in given.values)
    for key in ("searcher_opt", "scheduler_opt"):
        changes[key] = dict(_assignment(f"--{key}", text) for text in getattr(given, key))
    return changes


def _options(given: argparse.Namespace) -> SweepOptions:
    from ditk_ray.cli.cluster_arguments import cluster_settings
    from ditk_ray.sweep.setup import SweepOptions
    from ditk_ray.tracking.store import chosen_uri

    return SweepOptions(
        name=given.name,
        storage_path=given.storage_path,
        run_mode=chosen_run_mode(given),
        ray_address=given.ray_address,
        num_workers_per_node=given.num_workers_per_node,
        seed=given.seed,
        mlflow_uri=chosen_uri(given.mlflow_uri),
        mlflow_experiment=given.mlflow_experiment,
        mlflow_checkpoints=given.mlflow_checkpoints,
        kube=cluster_settings(given),
        keep_dijobs=given.keep_dijobs,
        command=tuple(sys.argv),
    )


def _assignment(flag: str, text: str) -> tuple[str, Any]:
    """Read `a.b=VALUE`; the value is Python or JSON, else a string."""
    path, equals, value = text.partition("=")
    if not equals or not path.strip("+. "):
        kind = "PATH" if flag == "--set" else "NAME"
        raise BadConfigError(Problem(f"{flag} {text}", f"has to be {kind}=VALUE"))
    words = {"true": True, "false": False, "null": None, "none": None}
    if value.lower() in words:
        return path.strip(), words[value.lower()]
    import ast

    try:
        return path.strip(), ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return path.strip(), value
