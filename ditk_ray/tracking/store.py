"""Which MLflow store a sweep is recorded in."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Iterator
from pathlib import Path

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.provenance.masking import mask_text

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
    scheme, colon, rest = uri.partition(":")
    hint = "give http://HOST:PORT, sqlite:///FILE, another database's URI, or none"
    if not colon:
        raise BadConfigError(Problem(where, "is no URI", hint))
    if scheme.partition("+")[0] not in (*_SERVERS, *_DATABASES):
        raise BadConfigError(Problem(where, f"MLflow has no store {scheme!r}", hint))
    if not rest.strip("/"):
        raise BadConfigError(Problem(where, "names no place", hint))
    file = sqlite_file(uri)
    if file is not None and not file.is_absolute():  # it is used from other folders later
        uri = uri.replace(str(file), str(file.resolve()), 1)
    return uri


def resolved_uri(uri: str, folder: Path) -> str:
    """Return the URI for MLflow; `folder` is the sweep's."""
    return embedded_uri(folder.parent) if uri == EMBEDDED else uri


def embedded_uri(storage: Path) -> str:
    """Return the URI of the store in a folder of results."""
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
    with database.with_name(f".{database.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def calm_mlflow() -> None:
    """Choose MLflow's settings by its environment variables; a user's own win.

    Its own retries would block for minutes, and it prints a link for each run.
    """
    for name, value in _SETTINGS.items():
        os.environ.setdefault(name, value)
