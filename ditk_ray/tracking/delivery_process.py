"""The process that delivers a sweep's journal while the sweep runs.

    python -m ditk_ray.tracking.delivery_process FOLDER

Its standard input is its tie to the sweep: closed without an `end` in the journal,
the sweep's process was killed, and its runs are ended as such.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ditk_ray.errors import BadConfigError, DitkRayError, Problem, StoreUnreachableError
from ditk_ray.record.journal import (
    TRACKING_FOLDER,
    EventWriter,
    iter_events,
    journal_path,
    read_events,
)
from ditk_ray.record.record import SweepStatus, TrialState, read_record
from ditk_ray.tracking.recording import DeliveryState, calm_mlflow
from ditk_ray.util.locks import HeldError, held, sweep_lock

if TYPE_CHECKING:
    from ditk_ray.tracking.delivery import Delivery

LINGER_SECONDS = 1.0
"""How long events are gathered: fewer, larger calls."""

GIVE_UP_SECONDS = 60.0
"""How long a store that is away is waited for once the sweep is gone."""

DELIVERY_LOCK = "delivery.lock"
_NICENESS = 19
"""Below Ray's workers, which have 15: trials come first."""

_MAX_PAUSE = 15.0
TRIES = 6


def deliver(folder: Path) -> int:
    """Deliver until the sweep is over and everything was sent; returns an exit code."""
    from ditk_ray.tracking.delivery import Delivery  # takes seconds, while the sweep runs

    gone = threading.Event()
    threading.Thread(target=_watch, args=(gone,), daemon=True).start()
    delivery = Delivery(folder, read_events(folder, "sweep")[-1]["uri"])
    pause, failing_since = LINGER_SECONDS, None
    while True:
        is_over = gone.is_set()
        if is_over:
            close_journal(folder)
        try:
            while delivery.step():
                pass
            if is_over:
                return 0
            pause, failing_since = LINGER_SECONDS, None
        except Exception:
            now = time.monotonic()
            failing_since = failing_since or now
            if is_over and now - failing_since > GIVE_UP_SECONDS:
                return 1
            pause = min(2 * pause, _MAX_PAUSE)
        gone.wait(pause) if not is_over else time.sleep(min(pause, 2.0))


def close_journal(folder: Path) -> None:
    """Write the end of a sweep whose process is gone, unless there is one."""
    kind, best = "end", ""
    states: dict[str, str] = {}
    for event in iter_events(folder):
        kind = event["kind"]
        if kind == "progress" and event["best"]:
            best = event["best"]["trial"]
        if "trial" in event:
            states[event["trial"]] = event.get("state") or states.get(event["trial"], "")
    if kind == "end":
        return
    finals = {state for state in TrialState if state.is_final}
    unfinished = [trial for trial, state in states.items() if state not in finals]
    try:
        with sweep_lock(folder):
            writer = EventWriter(journal_path(folder))
            status = _settled_status(folder)
            writer.append("end", status=status, unfinished=unfinished, best_trial=best)
            writer.close()
    except HeldError:  # it runs again, and will write its own
        return


def _settled_status(folder: Path) -> SweepStatus:
    """Return how a sweep ended that could not say so; one that only stopped was killed."""
    try:
        status = read_record(folder).status
    except DitkRayError:
        return SweepStatus.INTERRUPTED
    return SweepStatus.INTERRUPTED if status is SweepStatus.RUNNING else status


def _watch(gone: threading.Event) -> None:
    while os.read(0, 1024):
        pass
    gone.set()


def sync(
    folder: Path, uri: str | None = None, told: Callable[[float], None] = lambda share: None
) -> DeliveryState:
    """Deliver all of a sweep's journal to its store, or to another one.

    A sweep whose process is gone is ended as such. `told` is called with the share that is done.
    Raises `BadConfigError` if there is nothing to deliver or a sweep does so itself,
    and `StoreUnreachableError` if the store does not take it: nothing is lost then.
    """
    from ditk_ray.tracking.delivery import Delivery  # MLflow takes seconds to import

    sweeps = read_events(folder, "sweep")
    if not sweeps:
        hint = "it was run with --mlflow_uri none, or by an earlier version"
        raise BadConfigError(Problem(str(folder), "has nothing recorded for MLflow", hint))
    try:
        with held(folder / TRACKING_FOLDER / DELIVERY_LOCK):
            close_journal(folder)
            return _deliver(Delivery(folder, uri or sweeps[-1]["uri"]), told)
    except HeldError as error:
        what = "is being recorded right now"
        hint = "that process sends what is waiting; try again when it has ended"
        raise BadConfigError(Problem(folder.name, what, hint)) from error


def _deliver(delivery: Delivery, told: Callable[[float], None]) -> DeliveryState:
    waiting, failures = max(1, delivery.pending), 0
    while True:
        try:
            is_more = delivery.step()
        except Exception as error:
            failures += 1
            if failures == TRIES:
                raise StoreUnreachableError(
                    f"MLflow is not accepting records: {delivery.state.error}\n"
                    "nothing is lost: run it again when the store answers"
                ) from error
            time.sleep(min(failures, 3))
            continue
        if not is_more:
            delivery.upload_missing()
            return delivery.state
        failures = 0
        told(1 - delivery.pending / waiting)


def main() -> int:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the sweep says when it is over
    os.nice(_NICENESS)
    calm_mlflow()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    folder = Path(sys.argv[1])
    for _ in range(60):
        try:
            with held(folder / TRACKING_FOLDER / DELIVERY_LOCK):
                return deliver(folder)
        except HeldError:  # the one of an earlier run is about to end
            time.sleep(1)
    return 1


if __name__ == "__main__":
    sys.exit(main())
