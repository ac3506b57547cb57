"""The outcome of a sweep in a sentence."""

from __future__ import annotations

from ditk_ray.config.quantities import show_seconds
from ditk_ray.report.data import SweepData
from ditk_ray.report.values import count, show, show_count
from ditk_ray.tracking.record import SweepStatus, TrialState


def headline(sweep: SweepData) -> str:
    """Say how many trials took how long, which is the best, and what went wrong."""
    parts = (f"{_course(sweep)}: {_outcome(sweep)}.", _pareto(sweep), _failed(sweep))
    return " ".join(part for part in parts if part)


def _course(sweep: SweepData) -> str:
    took = "" if sweep.seconds is None else show_seconds(sweep.seconds)
    trials = count(len(sweep.trials), "trial")
    if sweep.is_running:
        return f"Still running{took and f' after {took}'}, {_ended(sweep)} of {trials} ended"
    if sweep.record.status is SweepStatus.INTERRUPTED:
        return f"Interrupted{took and f' after {took}'}, {_ended(sweep)} of {trials} ended"
    why = f", ended by {sweep.record.why}" if sweep.record.why else ""
    return f"{trials}{took and f' in {took}'}{why}"


def _ended(sweep: SweepData) -> int:
    return sum(trial.record.state.is_final for trial in sweep.trials)


def _outcome(sweep: SweepData) -> str:
    best = sweep.best
    if not sweep.trials:
        return "nothing was tried" + (" yet" if sweep.is_running else "")
    if best is None or best.score is None:
        return "none got a score" + (" yet" if sweep.is_running else "")
    after = ""
    if best.best_step is not None:
        after = f" after {show_count(best.best_step)} environment steps"
    reached = f"reached {sweep.record.metric} {show(best.score)}{after}"
    if len(sweep.trials) == 1:
        return f"{best.id} {reached}"
    so_far = " so far" if sweep.is_running else ""
    return f"the best{so_far}, {best.id}, {reached}"


def _pareto(sweep: SweepData) -> str:
    if not sweep.pareto:
        return ""
    verb = "is" if len(sweep.pareto) == 1 else "are"
    return f"{count(len(sweep.pareto), 'trial')} {verb} in the Pareto set."


def _failed(sweep: SweepData) -> str:
    failed = sum(trial.record.state is TrialState.FAILED for trial in sweep.trials)
    if not failed:
        return ""
    if failed == len(sweep.trials):
        return "It failed." if failed == 1 else "All of them failed."
    return f"{count(failed, 'trial')} failed."
