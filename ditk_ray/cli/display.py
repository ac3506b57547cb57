"""The progress of a running sweep, for a person: a live table, or plain lines."""

from __future__ import annotations

import sys
import time
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ditk_ray.cli.output import count_line, show_params, show_value, trial_table
from ditk_ray.config.objectives import show_objectives
from ditk_ray.config.quantities import show_seconds
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.sweep.setup import PreparedSweep
from ditk_ray.tracking.observer import SweepListener
from ditk_ray.tracking.record import SweepRecord, TrialRecord, TrialState

HEARTBEAT_SECONDS = 60.0
BEST_SECONDS = 5.0
"""How often a new best score is worth a line; at first each evaluation beats the last."""


def build_display(sweep: PreparedSweep) -> tuple[list[SweepListener], Any]:
    """Return the listeners that show progress, and a Tune reporter of the user's, if any."""
    wanted = sweep.job.progress_reporter
    if wanted in (None, "none"):
        return [], None
    if wanted == "auto":
        wanted = "live" if sys.stderr.isatty() else "plain"
    if wanted == "live":
        return [LiveDisplay(sweep.trial_count)], None
    if wanted == "plain":
        return [PlainDisplay(sweep.trial_count)], None
    return [], _tune_reporter(wanted)


def _tune_reporter(wanted: Any) -> Any:
    from ray.tune import ProgressReporter

    if isinstance(wanted, type) and issubclass(wanted, ProgressReporter):
        wanted = wanted()
    if not isinstance(wanted, ProgressReporter):
        hint = "auto, live, plain, none, or a Ray Tune ProgressReporter"
        raise BadConfigError(Problem("progress_reporter", f"{wanted!r} is none", hint))
    return wanted


class PlainDisplay:
    """One line for each thing that happens; for logs and pipes."""

    def __init__(self, trial_count: int) -> None:
        self._count = trial_count
        self._started = time.monotonic()
        self._spoke = self._started
        self._best: float | None = None
        self._spoke_of_best = 0.0

    def started(self, record: SweepRecord) -> None:
        """Say that the sweep starts."""
        self._started = time.monotonic()
        best = record.best()  # of a sweep that goes on
        self._best = None if best is None else record.score(best)
        self._say(f"{record.name}: {self._count} trials, {show_objectives(record.objectives)}")

    def reported(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Say when the best score of the sweep is beaten."""
        score = record.score(trial)
        if score is None or (self._best is not None and not record.is_better(score, self._best)):
            return
        self._best = score
        if time.monotonic() - self._spoke_of_best > BEST_SECONDS:
            self._spoke_of_best = time.monotonic()
            steps = trial.best_metrics.get("env_step", "?")
            self._say(f"{trial.id} leads: {record.metric} {show_value(score)}, {steps} steps")

    def changed(self, record: SweepRecord, trial: TrialRecord) -> None:
        """Say that a trial started or ended."""
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
        if time.monotonic() - self._spoke > HEARTBEAT_SECONDS:
            self._say(count_line(record))

    def ended(self, record: SweepRecord) -> None:
        """Say nothing: the summary follows."""

    def _say(self, text: str) -> None:
        self._spoke = time.monotonic()
        elapsed = show_seconds(self._spoke - self._started)
        print(f"[{elapsed:>7}] {text}", file=sys.stderr, flush=True)


class LiveDisplay:
    """A table on the terminal that is drawn anew about once a second."""

    def __init__(self, trial_count: int, console: Console | None = None) -> None:
        self._count = trial_count
        self._started = time.monotonic()
        self._live = Live(
            console=console or Console(stderr=True, highlight=False),
            auto_refresh=False,
            transient=True,
        )

    def started(self, record: SweepRecord) -> None:
        """Take over the terminal."""
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
        """Draw the table."""
        self._live.update(self._view(record), refresh=True)

    def ended(self, record: SweepRecord) -> None:
        """Give the terminal back."""
        self._live.stop()

    def _view(self, record: SweepRecord) -> Group:
        done = sum(trial.state.is_final for trial in record.trials.values())
        elapsed = show_seconds(time.monotonic() - self._started)
        best = record.best()
        lines = [Text(f"{record.name}  {elapsed}  {done}/{self._count} done", style="bold")]
        lines.append(Text(count_line(record)))
        if best is not None:
            score = show_value(record.score(best))
            params = show_params(best.params)
            text = f"best {record.metric} {score}  {best.id}  {params}"
            lines.append(Text(text, style="green", no_wrap=True, overflow="ellipsis"))
        return Group(*lines, trial_table(record, self._rows(record)))

    def _rows(self, record: SweepRecord) -> list[TrialRecord]:
        """Return the running trials, then those that ended last, as many as fit."""
        room = max(3, self._live.console.height - 6)
        trials = list(record.trials.values())
        running = [trial for trial in trials if trial.state is TrialState.RUNNING]
        ended = [trial for trial in trials if trial.state.is_final]
        return [*running, *reversed(ended)][:room]
