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
from pathlib import Path

from ditk_ray.errors import DitkRayError
from ditk_ray.tracking.journal import TRACKING_FOLDER, JournalWriter, all_events, read_events
from ditk_ray.tracking.lock import HeldError, held, sweep_lock
from ditk_ray.tracking.record import SweepStatus, TrialState, read_record
from ditk_ray.tracking.store import calm_mlflow

LINGER_SECONDS = 1.0
"""How long events are gathered: fewer, larger calls."""

GIVE_UP_SECONDS = 60.0
"""How long a store that is away is waited for once the sweep is gone."""

DELIVERY_LOCK = "delivery.lock"
_NICENESS = 19
"""Below Ray's workers, which have 15: trials come first."""

_MAX_PAUSE = 15.0


def deliver(folder: Path) -> int:
    """Deliver until the sweep is over and everything was sent; returns an exit code."""
    from ditk_ray.tracking.delivery import Delivery  # takes seconds; the sweep goes on meanwhile

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
    last, best, states = "", "", dict[str, str]()
    for event in all_events(folder):
        last = event["kind"]
        if last == "progress" and event["best"]:
            best = event["best"]["trial"]
        elif "trial" in event:
            states[event["trial"]] = event.get("state", states.get(event["trial"], ""))
    if last in ("end", ""):
        return
    finals = {state for state in TrialState if state.is_final}
    unfinished = [trial for trial, state in states.items() if state not in finals]
    try:
        with sweep_lock(folder):
            writer = JournalWriter(folder)
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


def main() -> int:
    """Deliver the journal of the folder that is given."""
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
