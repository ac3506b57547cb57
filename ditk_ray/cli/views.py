"""What people see of a sweep: its trials, the best, failures; and its progress while it runs."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from ditk_ray.cli.output import note, short_path, show_value
from ditk_ray.config.terms import show_objectives
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.record import sweep_folder
from ditk_ray.record.record import SweepRecord, TrialRecord, TrialState
from ditk_ray.record.sweep_folder import DEAD, SeenSweep, sweep_to_type
from ditk_ray.record.trial_folder import split_error, tail
from ditk_ray.tracking.recording import Recording, read_recording
from ditk_ray.util.units import show_bytes, show_seconds

if TYPE_CHECKING:  # they import Ray
    from ditk_ray.sweep.observer import SweepListener
    from ditk_ray.sweep.prepare import PreparedSweep

FAILURES_SHOWN = 3
ROWS_SHOWN = 20
_PIPE_WIDTH = 160
_HEARTBEAT_SECONDS = 60.0
_BEST_SECONDS = 5.0
"""How often a new best score is worth a line; at first each evaluation beats the last."""


class _Output(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to `cli.main` what becomes of a reader who has enough."""
        raise BrokenPipeError


def console() -> Console:
    return _Output(highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def show_steps(metrics: Mapping[str, Any]) -> str:
    """Write the environment steps of a report; the mean over several seeds is a float."""
    steps = metrics.get("env_step")
    return f"{steps:.0f}" if isinstance(steps, (int, float)) else "-"


def show_params(params: Mapping[str, Any]) -> str:
    """Write parameters in one line, each by the last part of its path."""
    return " ".join(f"{name.rpartition('.')[2]}={show_value(v)}" for name, v in params.items())


def count_line(record: SweepRecord) -> str:
    shown = ", ".join(f"{number} {state}" for state, number in sorted(record.counts().items()))
    number = len(record.trials)
    return f"{number} trial{'s' if number != 1 else ''}: {shown}" if number else "no trial yet"


def headline(record: SweepRecord, how: str, total: int) -> list[Text]:
    why = f" (ended by {record.why})" if record.why else ""
    done = sum(trial.state.is_final for trial in record.trials.values())
    first = f"{record.name}: {how}{why}; {done}/{total} trials done"
    return [Text(first, style="bold"), Text(count_line(record))]


def best_line(record: SweepRecord) -> Text:
    best = record.best()
    if best is None:
        return Text("no trial has a score yet")
    text = f"best: {score_line(record, best)}  {show_params(best.params)}"
    return Text(text, style="green", no_wrap=True, overflow="ellipsis")


def score_line(record: SweepRecord, trial: TrialRecord) -> str:
    has_steps = trial.best_metrics.get("env_step") is not None
    at = f" at {show_steps(trial.best_metrics)} environment steps" if has_steps else ""
    return f"{trial.id}, {record.metric} {show_value(record.score(trial))}{at}"


def print_failures(record: SweepRecord, out: Console, limit: int | None = FAILURES_SHOWN) -> None:
    failed = [trial for trial in record.trials.values() if trial.error]
    for trial in failed[:limit]:
        error, log = split_error(trial)
        out.print(f"{trial.id} failed{show_attempts(trial)}: {error}", style="red", markup=False)
        for line in tail(log) if log else []:
            out.print(Text(f"    | {line.rstrip()}"))
        if log:
            out.print(f"    full log: {short_path(log)}")
    if limit is not None and len(failed) > limit:
        out.print(f"... and {len(failed) - limit} more failed trials, see sweep.json")


def pareto_view(record: SweepRecord) -> Group:
    """Return the trials that none beats in every objective, with their values."""
    trials = record.pareto_set()
    title = f"Pareto set ({show_objectives(record.objectives)}): "
    title += f"{len(trials)} of {len(record.trials)} trials"
    table = _trial_columns([], [objective.metric for objective in record.objectives])
    for trial in trials[:ROWS_SHOWN]:
        values = [show_value(trial.best_metrics[item.metric]) for item in record.objectives]
        table.add_row(trial.id, *values, Text(show_params(trial.params)))
    more = len(trials) - ROWS_SHOWN
    rest = [Text(f"... and {more} more, see sweep.json")] if more > 0 else []
    return Group(Text(title), table, *rest)


def trial_table(record: SweepRecord, trials: Sequence[TrialRecord]) -> Table:
    table = _trial_columns(["state"], [f"best {record.metric}", "env_step", "time"])
    for trial in trials:
        score = record.score(trial)
        why = f"ended by {trial.why}; " if trial.why else ""
        table.add_row(
            trial.id,
            show_state(trial),
            "-" if score is None else show_value(score),
            show_steps(trial.metrics),
            f"{trial.metrics['time']:.1f}s" if "time" in trial.metrics else "-",
            Text(f"{why}{show_params(trial.params)}"),  # brackets in a value are not markup
        )
    return table


def _trial_columns(left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(box=None, pad_edge=False, expand=True)
    for heading in ("trial", *left):
        table.add_column(heading, no_wrap=True, min_width=11 if heading == "trial" else 9)
    for heading in right:
        table.add_column(heading, justify="right", no_wrap=True, min_width=max(7, len(heading)))
    # Where the terminal is narrow, the parameters are cut and nothing else.
    table.add_column("parameters", overflow="ellipsis", no_wrap=True, ratio=1)
    return table


def show_state(trial: TrialRecord) -> str:
    by_hand = " by hand" if trial.is_held and trial.state == "paused" else ""
    return f"{trial.state}{by_hand}{show_attempts(trial)}"


def show_attempts(trial: TrialRecord) -> str:
    """Write which attempts failed before the last one, such as ` (after lost, 2 stall)`."""
    before = trial.failures[:-1] if trial.error else trial.failures
    counts = Counter(failure["kind"] for failure in before)
    shown = [kind if number == 1 else f"{number} {kind}" for kind, number in counts.items()]
    return f" (after {', '.join(shown)})" if shown else ""


def sweep_headline(seen: SeenSweep) -> list[Text]:
    since = {"running": "for", DEAD: "after"}.get(seen.status, "in")
    took = "" if seen.seconds is None else f" {since} {show_seconds(seen.seconds)}"
    lines = headline(seen.record, f"{seen.status}{took}", seen.total)
    if seen.status == DEAD:
        resume = f"ditk-ray resume {sweep_to_type(seen.folder)}"
        lines.insert(1, Text(f"its process is gone (killed?); resume it: {resume}"))
    return lines


def chosen_trials(seen: SeenSweep, state: str | None) -> list[TrialRecord]:
    return [trial for trial in seen.record.ranked() if state in (None, trial.state)]


def trials_view(seen: SeenSweep, state: str | None, rows: int | None) -> list[RenderableType]:
    trials = chosen_trials(seen, state)
    parts: list[RenderableType] = []
    if trials:
        parts.append(trial_table(seen.record, trials[:rows]))
    elif state:
        parts.append(Text(f"no trial is {state}"))
    if rows is not None and len(trials) > rows:
        parts.append(Text(f"... and {len(trials) - rows} more trials (--all shows them)"))
    if seen.record.more_objectives and state is None:
        parts.append(pareto_view(seen.record))
    return parts


def print_sweep(seen: SeenSweep, state: str | None = None, is_whole: bool = False) -> None:
    record, folder, out = seen.record, seen.folder, console()
    rows = None if is_whole else ROWS_SHOWN
    out.print(Group(*sweep_headline(seen), *trials_view(seen, state, rows)))
    if best := record.best():
        out.print(f"best: {score_line(record, best)}", style="green", markup=False)
        for key, value in best.params.items():
            out.print(f"    {key} = {show_value(value)}", markup=False)
    elif seen.status != "running":
        out.print("no trial got a score", style="red")
    if state in (None, TrialState.FAILED):
        print_failures(record, out, None if is_whole else FAILURES_SHOWN)
    files = {"run it again: python": sweep_folder.BEST_CONFIG_FILE}
    files |= {"report:": sweep_folder.REPORT_FILE}
    lines = [
        f"{what} {short_path(folder / file)}"
        for what, file in files.items()
        if (folder / file).is_file()
    ]
    lines.append(_recording_line(seen, read_recording(folder)))
    if seen.status == "interrupted":
        lines.append(f"resume it: ditk-ray resume {sweep_to_type(folder)}")
    lines.append(f"everything is in {short_path(folder)} (sweep.json, a folder for each trial)")
    for line in lines:
        out.print(Text(line), soft_wrap=True)


def _recording_line(seen: SeenSweep, recording: Recording | None) -> str:
    if recording is None:
        return "not recorded in MLflow"
    name = sweep_to_type(seen.folder)
    where = f"MLflow ({mask_text(recording.uri)}, experiment {recording.experiment})"
    where += f"; it refused {recording.refused} records" if recording.refused else ""
    if recording.is_complete:
        return f"fully recorded in {where}; view it with: ditk-ray ui {name}"
    why = f" ({mask_text(recording.error)})" if recording.error else ""
    waiting = f"{show_bytes(recording.pending)} of records are waiting{why}"
    if seen.is_alive:
        return f"being recorded in {where}" + (f"; {waiting}" if why else "")
    missing = waiting if recording.pending else "its end is missing"
    if not recording.pending and recording.is_ended:
        missing = f"files of {recording.files_missing} runs are missing"
    return f"not fully recorded in {where}: {missing}; send it with: ditk-ray sync {name}"


def build_display(sweep: PreparedSweep) -> tuple[list[SweepListener], Any]:
    """Return the listeners that show progress, and a Tune reporter of the user's, if any."""
    wanted = sweep.job.progress_reporter
    if wanted == "auto":
        wanted = "live" if sys.stderr.isatty() else "plain"
    if wanted in (None, "none"):
        return [], None
    if wanted in ("live", "plain"):
        display = LiveDisplay if wanted == "live" else PlainDisplay
        return [display(sweep.trial_count)], None
    from ray.tune import ProgressReporter  # slow to import

    if isinstance(wanted, type) and issubclass(wanted, ProgressReporter):
        wanted = wanted()
    if not isinstance(wanted, ProgressReporter):
        hint = "auto, live, plain, none, or a Ray Tune ProgressReporter"
        raise BadConfigError(
            Problem("progress_reporter", f"{wanted!r} is not a progress reporter", hint)
        )
    return [], wanted


class PlainDisplay:
    """One line for each thing that happens; for logs and pipes."""

    def __init__(self, trial_count: int) -> None:
        self._count = trial_count
        self._started = self._spoke = time.monotonic()
        self._best: float | None = None
        self._spoke_of_best = 0.0

    def started(self, record: SweepRecord) -> None:
        self._started = time.monotonic()
        best = record.best()  # of a sweep that is resumed
        self._best = None if best is None else record.score(best)
        self._say(f"{record.name}: {self._count} trials, {show_objectives(record.objectives)}")

    def reported(self, record: SweepRecord, trial: TrialRecord) -> None:
        score = record.score(trial)
        if score is None or (self._best is not None and not record.is_better(score, self._best)):
            return
        self._best = score
        if time.monotonic() - self._spoke_of_best > _BEST_SECONDS:
            self._spoke_of_best = time.monotonic()
            steps = trial.best_metrics.get("env_step", "?")
            self._say(f"{trial.id} leads: {record.metric} {show_value(score)}, {steps} steps")

    def changed(self, record: SweepRecord, trial: TrialRecord) -> None:
        if trial.state is TrialState.RUNNING:
            self._say(f"{trial.id} started: {show_params(trial.params) or 'nothing varies'}")
        elif trial.state.is_final:
            done = sum(item.state.is_final for item in record.trials.values())
            score = record.score(trial)
            shown = "" if score is None else f", best {record.metric} {show_value(score)}"
            why = f" by {trial.why}" if trial.why else ""
            error = f": {trial.error}" if trial.error else ""
            self._say(f"{trial.id} {trial.state}{why}{shown}{error} ({done}/{self._count} done)")

    def refreshed(self, record: SweepRecord) -> None:
        """Say something now and then, so that a long sweep does not look dead."""
        if time.monotonic() - self._spoke > _HEARTBEAT_SECONDS:
            self._say(count_line(record))

    def ended(self, record: SweepRecord) -> None:
        """Say nothing: the summary follows."""

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        note(f"[{show_seconds(self._spoke - self._started):>7}] {text}")


class LiveDisplay:
    """A table on the terminal that is redrawn about once a second."""

    def __init__(self, trial_count: int, console: Console | None = None) -> None:
        self._count = trial_count
        self._started = time.monotonic()
        console = console or Console(stderr=True, highlight=False)
        self._live = Live(console=console, auto_refresh=False, transient=True)

    def started(self, record: SweepRecord) -> None:
        self._started = time.monotonic()
        self._live.start()
        self.refreshed(record)

    def reported(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Wait for the next refresh."""

    def changed(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Leave a failed trial's line above the table."""
        if trial.error:
            self._live.console.print(Text(f"{trial.id} failed: {trial.error}", style="red"))

    def refreshed(self, record: SweepRecord) -> None:
        self._live.update(self._view(record), refresh=True)

    def ended(self, record: SweepRecord) -> None:
        self._live.stop()

    def _view(self, record: SweepRecord) -> Group:
        how = f"running for {show_seconds(time.monotonic() - self._started)}"
        trials = list(record.trials.values())
        running = [trial for trial in trials if trial.state is TrialState.RUNNING]
        ended = [trial for trial in reversed(trials) if trial.state.is_final]
        rows = [*running, *ended][: max(3, self._live.console.height - 6)]
        lines = [*headline(record, how, self._count), best_line(record)]
        return Group(*lines, trial_table(record, rows))
