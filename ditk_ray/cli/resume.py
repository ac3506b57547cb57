"""`ditk-ray resume`, `ditk-ray extend` and `tune --resume_existing`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ditk_ray.cli.flags import Format, SweepCommand, format_option
from ditk_ray.cli.output import note
from ditk_ray.cli.tune import Tune, finish, read_sweep, show_sweep
from ditk_ray.config.job_files import JobEntry
from ditk_ray.config.options import option, positive, require_sweep_name, seconds
from ditk_ray.config.terms import REPORTERS, Reporter
from ditk_ray.errors import BadConfigError, NothingLeftError, Problem
from ditk_ray.execution.fork_client import ForkClient
from ditk_ray.ray_cluster.session import quiet_ray
from ditk_ray.record.record import RECORD_FILE, SweepRecord, SweepStatus, read_record
from ditk_ray.record.sweep_folder import STATE_FOLDER, TRIAL_PREFIX, find_sweep, sweep_to_type
from ditk_ray.util.locks import LOCK_FILE, is_running, wait_until_free
from ditk_ray.util.units import show_seconds

if TYPE_CHECKING:  # they import Ray
    from ditk_ray.sweep.prepare import PreparedSweep
    from ditk_ray.sweep.resume import EarlierSweep

_GRACE_SECONDS = 300.0
"""How long `tune --resume_existing` waits for a process that runs the sweep."""


class Resume(SweepCommand):
    """Resume a sweep that was interrupted, or whose process or machine is gone.

      ditk-ray resume my_sweep
      ditk-ray resume my_sweep --retry_failed     runs its failed trials again, too

    Trials that have ended are not run again; those that were running resume from their last
    checkpoint, the searcher keeps what it learned, and MLflow's runs are continued.
    """

    retry_failed: bool = option("run trials that have failed again", False)
    ray_address: str | None = option("a cluster (default: as before)", metavar="HOST:PORT")
    kubeconfig: Path | None = option("for DIJobs (default: as before)", metavar="FILE")
    context: str | None = option("for DIJobs (default: as before)", metavar="NAME")
    progress_reporter: Reporter | None = option("(default: as before)")
    format: Format = format_option()
    num_samples: int | None = None
    max_time: float | None = None

    def run(self, job_file: Path | None = None) -> int:
        """Resume the sweep; `job_file` is its job's file now, should that be gone where it was."""
        folder = find_sweep(self.sweep, self.storage_path)
        quiet_ray()
        note("importing DI-engine and Ray (some seconds)")
        with ForkClient() as warm:
            from ditk_ray.sweep.resume import read_earlier  # imports Ray while DI-engine is

            earlier = self.changed(read_earlier(folder, self.retry_failed), job_file)
            return _run(earlier, warm, self.format)

    def changed(self, earlier: EarlierSweep, job_file: Path | None = None) -> EarlierSweep:
        """Return the sweep with what is to be different from before."""
        job, options = earlier.saved.job, earlier.saved.options
        changes: dict[str, Any] = {}
        if self.num_samples is not None:
            changes["num_samples"] = job.num_samples + self.num_samples
        if self.max_time is not None and job.max_time is not None:
            changes["max_time"] = max(job.max_time, earlier.record.worked_seconds) + self.max_time
        if self.progress_reporter is not None:
            changes["progress_reporter"] = self.progress_reporter
        if job_file is not None and job.file is not None and not job.file.is_file():
            changes["file"] = job_file
        if self.ray_address is not None:
            options = replace(options, run_mode="remote", ray_address=self.ray_address)
        if self.kubeconfig is not None or self.context is not None:
            kubeconfig = self.kubeconfig or options.kube.kubeconfig
            kube = replace(options.kube, kubeconfig=kubeconfig, context=self.context)
            options = replace(options, kube=kube)
        saved = replace(earlier.saved, job=replace(job, **changes), options=options)
        return replace(earlier, saved=saved)


class Extend(Resume):
    """Resume a sweep with more trials, or more time, than it was given at first.

    ditk-ray extend my_sweep --num_samples 50   50 more trials
    ditk-ray extend my_sweep --max_time 2h      two more hours
    """

    num_samples: int | None = option("number of samples to add", metavar="N", parse=positive)
    max_time: float | None = option("time to add, such as 30m or 2h", metavar="TIME", parse=seconds)

    def run(self, job_file: Path | None = None) -> int:
        if self.num_samples is None and self.max_time is None:
            hint = "ditk-ray extend SWEEP --num_samples 50"
            raise BadConfigError(Problem("extend", "needs --num_samples or --max_time", hint))
        return super().run(job_file)


def require_work(sweep: PreparedSweep, earlier: EarlierSweep) -> None:
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


def _run(earlier: EarlierSweep, warm: ForkClient, form: str) -> int:
    from ditk_ray.sweep.prepare import prepared_sweep  # imports Ray

    saved = earlier.saved
    with prepared_sweep(saved.job, saved.options, warm, earlier) as sweep:
        require_work(sweep, earlier)
        done = earlier.made - len(earlier.unfinished)
        note(
            f"resuming {sweep.name}: {done} trials have ended, "
            f"{len(earlier.unfinished)} continue, {sweep.trial_count} in all"
        )
        for trial in earlier.held:
            again = f"ditk-ray continue {sweep_to_type(sweep.folder)} {trial}"
            note(f"{trial} stays paused, as requested; to resume it: {again}")
        outcome = show_sweep(sweep)
    return finish(outcome, form)


def resume_existing(given: Tune, job: JobEntry) -> int | None:
    """Resume the sweep that `tune --name` names; return None if there is none to resume.

    One that has run all of its trials is done: its summary is printed once more. `job` is the
    class as it is now, in case the sweep was begun in a folder that is gone. Raises
    `BadConfigError` if the sweep is another one.
    """
    name, storage = given.sweep.name, given.sweep.storage_path
    if name is None:
        hint = "a command that is restarted has to know which sweep to resume"
        raise BadConfigError(Problem("--resume_existing", "needs --name", hint))
    require_sweep_name(name)
    folder = storage.expanduser().resolve() / name
    # A restarted command may begin while the previous process is still ending.
    most = show_seconds(_GRACE_SECONDS)
    if is_running(folder):
        note(f"another process still runs {name}; waiting for its end, {most} at most")
        wait_until_free(folder, _GRACE_SECONDS)
    if not (folder / RECORD_FILE).is_file():
        _put_aside(folder)
        return None
    record = read_record(folder)
    require_same_job(given, job.name, folder, record)
    if record.status is SweepStatus.FINISHED:
        note(f"{name} has finished already")
        return _finish_again(record, folder, given.format)
    try:
        return _as_resumed(given, folder).run(job.file)
    except NothingLeftError as error:
        note(str(error))
        record.status = SweepStatus.FINISHED
        return _finish_again(record, folder, given.format)


def _as_resumed(given: Tune, folder: Path) -> Resume:
    reporter: Any = given.changes.progress_reporter  # a class was saved with the job
    return Resume(
        sweep=str(folder),
        storage_path=folder.parent,
        ray_address=given.sweep.ray_address,
        kubeconfig=given.sweep.kube.kubeconfig,
        context=given.sweep.kube.context,
        progress_reporter=reporter if reporter in REPORTERS else None,
        format=given.format,
    )


def _put_aside(folder: Path) -> None:
    """Make room for a sweep where one was killed before it had started.

    A folder that holds anything of a trial, or is not a sweep's, is not one of these, and is
    left for `tune` to refuse.
    """
    is_sweep = any((folder / name).exists() for name in (LOCK_FILE, STATE_FOLDER))
    if not is_sweep or any(folder.glob(f"{TRIAL_PREFIX}*")) or is_running(folder):
        return
    number = 1
    while (aside := folder.with_name(f"{folder.name}.unbegun_{number}")).exists():
        number += 1
    folder.rename(aside)
    note(f"{folder.name} was killed before it started; its files were moved to {aside}")


def _finish_again(record: SweepRecord, folder: Path, form: str) -> int:
    from ditk_ray.sweep.run import SweepOutcome  # imports Ray

    return finish(SweepOutcome(record, folder, record.worked_seconds), form)


def require_same_job(given: Tune, cfg_class: str, folder: Path, record: SweepRecord) -> None:
    """Raise `BadConfigError` unless the sweep was begun with this class and these arguments.

    Later changes of the class itself do not count, nor does what `extend` has added.
    """
    begun, first = record.job.get("name"), _begun_with(folder)
    differences = [] if begun in (None, cfg_class) else [f"of {begun}, not of {cfg_class}"]
    if first is not None:
        old, new = _compared(first), _compared(given)
        differences += [
            f"{flag} {old[flag]}, not {new[flag]}" for flag in old if old[flag] != new[flag]
        ]
    if differences:
        hint = "give another --name, or add to that sweep with `ditk-ray extend`"
        what = f"is another sweep: {'; '.join(differences)}"
        raise BadConfigError(Problem(f"--name {given.sweep.name}", what, hint))


def _begun_with(folder: Path) -> Tune | None:
    """Return how a sweep was begun; None if that cannot be read here, or by this version."""
    from ditk_ray.sweep.resume import load_job_of  # imports Ray

    try:
        command = load_job_of(folder).options.command
        return read_sweep(command[2:]) if "tune" in command[1:2] else None
    except BadConfigError:
        return None


def _compared(given: Tune) -> dict[str, str]:
    """Return the flags that make a sweep what it is, and how their values are shown.

    A copy of the code may be elsewhere each time, and so may the template of DIJobs.
    """
    values: dict[str, Any] = {"seed": given.sweep.seed, **vars(given.changes)}
    values["num_workers_per_node"] = given.sweep.num_workers_per_node
    values["repeat_run_count"] = values.pop("seeds")
    for key in ("set", "searcher_opt", "scheduler_opt"):
        pairs = dict(text.partition("=")[::2] for text in values[key])
        values[key] = " ".join(f"{name}={pairs[name]}" for name in sorted(pairs)) or None
    for key in ("dijob_template", "progress_reporter"):
        del values[key]
    return {f"--{key}": "none" if value is None else str(value) for key, value in values.items()}
