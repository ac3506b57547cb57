"""Sending what a sweep has not yet delivered to MLflow, after the sweep."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from ditk_ray.errors import BadConfigError, Problem, StoreUnreachableError
from ditk_ray.tracking.delivery import Delivery
from ditk_ray.tracking.delivery_process import DELIVERY_LOCK, close_journal
from ditk_ray.tracking.delivery_state import DeliveryState
from ditk_ray.tracking.journal import TRACKING_FOLDER, read_events
from ditk_ray.tracking.lock import HeldError, held

TRIES = 6


def sync(
    folder: Path, uri: str | None = None, told: Callable[[float], None] = lambda share: None
) -> DeliveryState:
    """Deliver all of a sweep's journal to its store, or to another one.

    A sweep whose process is gone is ended as such. `told` hears how much is done.
    Raises `BadConfigError` if there is nothing to deliver or a sweep does so itself,
    and `StoreUnreachableError` if the store does not take it: nothing is lost then.
    """
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
        hint = "what waits is sent by that process; try again when it has ended"
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
                    f"MLflow does not take the records: {delivery.state.error}\n"
                    "nothing is lost: run it again when the store answers"
                ) from error
            time.sleep(min(failures, 3))
            continue
        if not is_more:
            delivery.upload_missing()
            return delivery.state
        failures = 0
        told(1 - delivery.pending / waiting)
