"""Where a sweep is recorded in MLflow, and whether all of it is there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.tracking.delivery_state import read_state
from ditk_ray.tracking.event_log import Event
from ditk_ray.tracking.journal import all_events, journal_path
from ditk_ray.tracking.store import resolved_uri

_SERVERS = ("http", "https", "databricks", "uc", "")  # also a bare `databricks`


@dataclass(frozen=True)
class Recording:
    """How far the recording of a sweep in its store has come."""

    uri: str
    """As MLflow takes it: it may hold a password."""
    experiment: str
    experiment_id: str
    run_id: str
    """The sweep's own run; empty as long as there is none."""
    pending: int
    """How many bytes of the journal wait."""
    refused: int
    error: str | None
    is_ended: bool
    """Whether the journal says how the sweep ended."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing in the store, and nothing will follow."""
        return self.is_ended and not self.pending

    @property
    def is_on_server(self) -> bool:
        """Whether a server holds it that has a UI of its own."""
        return urlsplit(self.uri).scheme in _SERVERS

    def page(self, server: str) -> str:
        """Return the address of the sweep's run in MLflow's UI at `server`."""
        experiment = f"/{self.experiment_id}" if self.experiment_id else ""
        run = f"/runs/{self.run_id}" if self.run_id else ""
        return mlflow_page(server, f"experiments{experiment}{run}")


def mlflow_page(server: str, place: str = "experiments") -> str:
    """Return the address of a place in MLflow's UI, in its mode for training models."""
    return f"{server.rstrip('/')}/#/{place}?workflowType=machine_learning"


def read_recording(folder: Path) -> Recording | None:
    """Return how a sweep is recorded, None if it is not."""
    sweep, is_ended = _last_sweep(folder)
    if sweep is None:
        return None
    state = read_state(folder, sweep["uri"])
    size = journal_path(folder).stat().st_size
    return Recording(
        uri=resolved_uri(sweep["uri"], folder),
        experiment=sweep["experiment"],
        experiment_id=state.experiment_id,
        run_id=state.runs.get("", ""),
        pending=max(0, size - state.offset),
        refused=state.refused,
        error=state.error,
        is_ended=is_ended,
    )


def _last_sweep(folder: Path) -> tuple[Event | None, bool]:
    """Return the last event that names the store, and whether the last of all is an end."""
    sweep, last = None, ""
    for event in all_events(folder):
        last = event["kind"]
        sweep = event if last == "sweep" else sweep
    return sweep, last == "end"
