"""Which MLflow store a sweep is recorded in, and how much of it is there; without MLflow itself."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.record.journal import TRACKING_FOLDER, iter_events, journal_path
from ditk_ray.util.files import write_whole
from ditk_ray.util.locks import locked

EMBEDDED = "embedded"
"""Stands for the store in the results' own folder, wherever that is moved to."""

NOWHERE = "none"
DATABASE_FILE = "mlflow.db"
ARTIFACTS_FOLDER = "mlflow_artifacts"

_SETTINGS = {
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
_SERVERS = ("http", "https", "databricks", "uc")
"""What has a UI of its own, as a bare `databricks` has."""

_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


def chosen_uri(given: str | None) -> str:
    """Return where to record: as given, else MLFLOW_TRACKING_URI, else the embedded store.

    Raises `BadConfigError` for what MLflow does not know.
    """
    uri = given or os.environ.get("MLFLOW_TRACKING_URI") or EMBEDDED
    if uri in (EMBEDDED, NOWHERE, "databricks"):
        return uri
    shown = mask_text(uri)
    where = f"--mlflow_uri {shown}" if given else f"MLFLOW_TRACKING_URI={shown}"
    scheme, _, rest = uri.partition(":")
    if scheme.partition("+")[0] not in (*_SERVERS, *_DATABASES) or not rest.strip("/"):
        hint = "give http://HOST:PORT, sqlite:///FILE, another database's URI, or none"
        raise BadConfigError(Problem(where, "is not the URI of an MLflow store", hint))
    file = sqlite_file(uri)
    if file is not None and not file.is_absolute():  # it is used from other folders later
        uri = uri.replace(str(file), str(file.resolve()), 1)
    return uri


def resolved_uri(uri: str, folder: Path) -> str:
    """Return the URI for MLflow; `folder` is the sweep's."""
    return embedded_uri(folder.parent) if uri == EMBEDDED else uri


def embedded_uri(storage: Path) -> str:
    return f"sqlite:///{storage.resolve() / DATABASE_FILE}"


def artifact_location(uri: str, folder: Path, experiment: str) -> str | None:
    """Return where a new experiment's artifacts go; None lets the server decide."""
    if uri.partition(":")[0].partition("+")[0] not in _DATABASES:
        return None
    database = sqlite_file(uri)
    place = database.parent if database else folder.parent
    name = re.sub(r"[^\w.-]", "_", experiment).lstrip(".") or "experiment"
    return str(place.resolve() / ARTIFACTS_FOLDER / name)


def sqlite_file(uri: str) -> Path | None:
    """Return the file of a SQLite store, None for another kind of store."""
    scheme, _, path = uri.partition(":///")
    return Path(path.partition("?")[0]) if scheme.partition("+")[0] == "sqlite" else None


@contextlib.contextmanager
def opened_once(uri: str) -> Iterator[None]:
    """Keep two processes from creating the tables of the same SQLite file at once."""
    database = sqlite_file(uri)
    if database is None:
        yield
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    with locked(database.with_name(f".{database.name}.lock")):
        yield


def calm_mlflow() -> None:
    """Choose MLflow's settings by its environment variables; a user's own win.

    Its own retries would block for minutes, and it prints a link for each run.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)


@dataclass
class DeliveryState:
    """How far a journal was delivered to one store; kept beside the journal."""

    uri: str
    offset: int = 0
    experiment_id: str = ""
    runs: dict[str, str] = field(default_factory=dict)
    """The ids of the runs by trial; the sweep's own is under the empty name."""
    refused: int = 0
    files_missing: list[str] = field(default_factory=list)
    """The trials with files that could not be uploaded yet."""
    error: str | None = None
    """Why the last try failed."""


def state_path(folder: Path, uri: str) -> Path:
    name = hashlib.sha256(uri.encode()).hexdigest()[:8]
    return folder / TRACKING_FOLDER / f"mlflow-{name}.json"


def read_state(folder: Path, uri: str) -> DeliveryState:
    try:
        return DeliveryState(**json.loads(state_path(folder, uri).read_text()))
    except (OSError, ValueError, TypeError):
        return DeliveryState(uri)


def write_state(folder: Path, state: DeliveryState) -> None:
    write_whole(state_path(folder, state.uri), json.dumps(asdict(state)))


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
    files_missing: int
    """Of how many runs files could not be uploaded yet."""
    error: str | None
    is_ended: bool
    """Whether the journal says how the sweep ended."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing in the store, and nothing will follow."""
        return self.is_ended and not self.pending and not self.files_missing

    @property
    def is_on_server(self) -> bool:
        """Whether a server holds it that has a UI of its own."""
        return urlsplit(self.uri).scheme in (*_SERVERS, "")

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
    sweep = last = None
    for last in iter_events(folder):
        sweep = last if last["kind"] == "sweep" else sweep
    if sweep is None or last is None:
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
        files_missing=len(state.files_missing),
        error=state.error,
        is_ended=last["kind"] == "end",
    )
