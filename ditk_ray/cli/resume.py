"""`ditk-ray resume` and `ditk-ray extend`: go on with a sweep."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.sweep_arguments import add_format, add_sweep, positive
from ditk_ray.errors import BadConfigError, NothingLeftError, Problem

if TYPE_CHECKING:
    from ditk_ray.config.job_files import JobEntry
    from ditk_ray.kube.connection import KubeSettings
    from ditk_ray.sweep.earlier import EarlierSweep
    from ditk_ray.sweep.setup import PreparedSweep
    from ditk_ray.tracking.record import SweepRecord
    from ditk_ray.trial.warm_node import WarmNode

_RESUME = """\
examples:
  ditk-ray resume my_sweep
  ditk-ray resume my_sweep --retry_failed     its failed trials are run again, too

For a sweep that was interrupted, or whose process or machine is gone. Trials that have
ended are not run again; those that were running go on from their last checkpoint, and the
searcher keeps what it learned. MLflow's runs go on, too.
"""

_GRACE_SECONDS = 300.0
"""How long `tune --resume_existing` waits for a process that runs the sweep."""

_EXTEND = """\
examples:
  ditk-ray extend my_sweep --num_samples 50   50 more trials
  ditk-ray extend my_sweep --max_time 2h      two more hours
"""


def add_commands(commands: Any) -> None:
    """Add `resume` and `extend` to the parser's commands."""
    resume = commands.add_parser(
        "resume",
        help="go on with a sweep that was interrupted or killed",
        description="Go on with a sweep that was interrupted or killed.",
        epilog=_RESUME,
    )
    resume.set_defaults(run=run_resume)
    extend = commands.add_parser(
        "extend",
        help="add trials to a sweep that has ended",
        description="Go on with a sweep beyond what it was asked for at first.",
        epilog=_EXTEND,
    )
    extend.set_defaults(run=run_extend)
    for parser in (resume, extend):
        add_sweep(parser)
    extend.add_argument("--num_samples", metavar="N", type=positive, help="so many more samples")
    extend.add_argument("--max_time", metavar="TIME", help="so much more time, such as 30m or 2h")
    for parser in (resume, extend):
        parser.add_argument(
            "--retry_failed", action="store_true", help="run trials that have failed again"
        )
        parser.add_argument(
            "--ray_address", metavar="HOST:PORT", help="a cluster (default: as before)"
        )
        parser.add_argument(
            "--kubeconfig", metavar="FILE", type=Path, help="of DIJobs (default: as before)"
        )
        parser.add_argument("--context", metavar="NAME", help="of DIJobs (default: as before)")
        parser.add_argument(
            "--progress_reporter", metavar="auto|live|plain|none", help="(default: as before)"
        )
        add_format(parser)


def run_resume(given: argparse.Namespace) -> int:
    """Go on with what is left to do."""
    return _go_on(given, {})


def run_extend(given: argparse.Namespace) -> int:
    """Go on with more than was asked for."""
    if given.num_samples is None and given.max_time is None:
        hint = "ditk-ray extend SWEEP --num_samples 50"
        raise BadConfigError(Problem("extend", "needs --num_samples or --max_time", hint))
    from ditk_ray.config.quantities import parse_seconds

    more: dict[str, Any] = {"num_samples": given.num_samples}
    try:
        more["max_time"] = None if given.max_time is None else parse_seconds(given.max_time)
    except ValueError as error:
        raise BadConfigError(Problem(f"--max_time {given.max_time}", str(error))) from error
    return _go_on(given, {key: value for key, value in more.items() if value is not None})


def resume_existing(given: argparse.Namespace, job: JobEntry) -> int | None:
    """Go on with the sweep that `tune --name` names; return None if there is none to go on with.

    One that has run all of its trials is done: its summary is printed once more. `job` is the
    class as it stands now, in case that the sweep was begun in a folder that is gone. Raises
    `BadConfigError` if the sweep is another one.
    """
    from ditk_ray.cli import output
    from ditk_ray.cli.same_job import require_same_job
    from ditk_ray.config.sweep_names import require_sweep_name
    from ditk_ray.tracking.record import RECORD_FILE, SweepStatus, read_record

    if given.name is None:
        hint = "what is started again has to know which sweep is its own"
        raise BadConfigError(Problem("--resume_existing", "needs --name", hint))
    require_sweep_name(given.name)
    folder = given.storage_path.expanduser().resolve() / given.name
    _wait_for_the_other(folder)
    if not (folder / RECORD_FILE).is_file():
        _put_aside(folder)
        return None
    record = read_record(folder)
    require_same_job(given, job.name, folder, record)
    if record.status is SweepStatus.FINISHED:
        output.note(f"{given.name} has finished already")
        return _finish_again(record, folder, given.format)
    as_resumed = {**vars(given), "sweep": str(folder), "retry_failed": False}
    try:
        return _go_on(argparse.Namespace(**as_resumed), {}, job.file)
    except NothingLeftError as error:
        output.note(str(error))
        record.status = SweepStatus.FINISHED
        return _finish_again(record, folder, given.format)


def _wait_for_the_other(folder: Path) -> None:
    """Give a process that still runs the sweep the time to end.

    What is started again may begin while the process before has its last seconds.
    """
    from ditk_ray.cli import output
    from ditk_ray.config.quantities import show_seconds
    from ditk_ray.tracking.lock import wait_until_free

    most = show_seconds(_GRACE_SECONDS)
    told = f"another process runs {folder.name} still; waiting for its end, {most} at most"
    wait_until_free(folder, _GRACE_SECONDS, lambda: output.note(told))


def _put_aside(folder: Path) -> None:
    """Make room for a sweep where one was killed before it had begun.

    A folder that holds anything of a trial, or is no sweep's at all, is none of these, and is
    left for `tune` to refuse.
    """
    from ditk_ray.cli import output
    from ditk_ray.sweep.ledger import STATE_FOLDER
    from ditk_ray.tracking.lock import LOCK_FILE, is_running

    is_sweep = any((folder / name).exists() for name in (LOCK_FILE, STATE_FOLDER))
    if not is_sweep or any(folder.glob("trial_*")) or is_running(folder):
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.unbegun_{number}")).exists():
        number += 1
    folder.rename(aside)
    output.note(f"{folder.name} was ended before it began; what was there is in {aside}")


def _finish_again(record: SweepRecord, folder: Path, form: str) -> int:
    from ditk_ray.cli.tune import finish
    from ditk_ray.sweep.run import SweepOutcome

    return finish(SweepOutcome(record, folder, record.worked_seconds), form)


def _go_on(given: argparse.Namespace, more: dict[str, Any], job_file: Path | None = None) -> int:
    from ditk_ray.cli import output
    from ditk_ray.cluster.ray_session import quiet_ray
    from ditk_ray.tracking.folders import find_sweep
    from ditk_ray.trial.warm_node import WarmNode

    folder = find_sweep(given.sweep, given.storage_path)
    quiet_ray()
    output.note("importing DI-engine and Ray (some seconds)")
    with WarmNode() as warm:
        from ditk_ray.sweep.earlier import read_earlier

        earlier = _changed(read_earlier(folder, given.retry_failed), given, more)
        earlier = _found_again(earlier, job_file)
        return _run(earlier, warm, given.format)


def _changed(
    earlier: EarlierSweep, given: argparse.Namespace, more: dict[str, Any]
) -> EarlierSweep:
    """Return the sweep with what is to be different from before."""
    job, options = earlier.saved.job, earlier.saved.options
    changes: dict[str, Any] = {}
    if "num_samples" in more:
        changes["num_samples"] = job.num_samples + more["num_samples"]
    if "max_time" in more and job.max_time is not None:
        left = max(0.0, job.max_time - earlier.record.worked_seconds)
        changes["max_time"] = earlier.record.worked_seconds + left + more["max_time"]
    if given.progress_reporter is not None:
        changes["progress_reporter"] = given.progress_reporter
    if given.ray_address is not None:
        options = replace(options, run_mode="remote", ray_address=given.ray_address)
    options = replace(options, kube=_where_now(options.kube, given))
    job = job.model_copy(update=changes)
    return replace(earlier, saved=replace(earlier.saved, job=job, options=options))


def _where_now(before: KubeSettings, given: argparse.Namespace) -> KubeSettings:
    """Return the cluster of the sweep's DIJobs, which another file or name may lead to by now."""
    if given.kubeconfig is not None:
        return replace(before, kubeconfig=given.kubeconfig, context=given.context)
    return replace(before, context=given.context or before.context)


def _found_again(earlier: EarlierSweep, job_file: Path | None) -> EarlierSweep:
    """Return the sweep with its job's file where it is now, if it is gone where it was."""
    job = earlier.saved.job
    if job_file is None or job.file is None or job.file.is_file():
        return earlier
    job = job.model_copy(update={"file": job_file})
    return replace(earlier, saved=replace(earlier.saved, job=job))


def _require_work(sweep: PreparedSweep, earlier: EarlierSweep) -> None:
    """Refuse to start for nothing."""
    from ditk_ray.tracking.folders import sweep_to_type

    name, where = sweep_to_type(sweep.folder), f"SWEEP {sweep.name}"
    if earlier.ended_by is not None:
        what = f"was ended by its stopper, {earlier.ended_by}, which would end it again at once"
        hint = f"begin another with another stopper: ditk-ray tune ... --warm_start {name}"
        raise NothingLeftError(Problem(where, what, hint))
    if sweep.seconds_left is not None and sweep.seconds_left <= 0:
        hint = f"give it more: ditk-ray extend {name} --max_time 1h"
        raise NothingLeftError(Problem(where, "has used up its time (max_time)", hint))
    if not earlier.unfinished and earlier.made >= sweep.trial_count:
        hint = f"add trials: ditk-ray extend {name} --num_samples 10"
        raise NothingLeftError(Problem(where, f"has run all of its {earlier.made} trials", hint))


def _run(earlier: EarlierSweep, warm: WarmNode, form: str) -> int:
    from ditk_ray.cli import output
    from ditk_ray.cli.display import build_display
    from ditk_ray.cli.tune import finish
    from ditk_ray.sweep.run import run_sweep
    from ditk_ray.sweep.setup import prepared_sweep
    from ditk_ray.tracking.folders import sweep_to_type

    saved = earlier.saved
    with prepared_sweep(saved.job, saved.options, warm, earlier) as sweep:
        _require_work(sweep, earlier)
        done = earlier.made - len(earlier.unfinished)
        output.note(
            f"going on with {sweep.name}: {done} trials have ended, "
            f"{len(earlier.unfinished)} go on, {sweep.trial_count} in all"
        )
        for trial in earlier.held:
            again = f"ditk-ray continue {sweep_to_type(sweep.folder)} {trial}"
            output.note(f"{trial} stays paused, as somebody wanted; to have it go on: {again}")
        display, reporter = build_display(sweep)
        outcome = run_sweep(sweep, display, reporter, output.note)
    return finish(outcome, form)
