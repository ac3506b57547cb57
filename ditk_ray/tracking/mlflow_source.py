"""Reading an MLflow store: an experiment by its name, all of its runs, whole histories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.entities import Experiment, Metric, Run
from mlflow.exceptions import MlflowException
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.rest_utils import http_request

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.errors import BadConfigError, Problem, StoreUnreachableError
from ditk_ray.provenance.masking import mask_text
from ditk_ray.tracking.store import sqlite_file

ANSWER_SECONDS = 10
PAGE_SIZE = 1000
_GATEWAY_ERRORS = (502, 503, 504)


def open_store(uri: str) -> MlflowClient:
    """Return a client for the store at `uri`.

    Raises `StoreUnreachableError` or `BadConfigError`, within seconds, if there is none.
    """
    require_store(uri)
    try:
        return MlflowClient(tracking_uri=uri)
    except Exception as error:  # databases and their drivers have errors of their own
        raise BadConfigError(
            Problem(mask_text(uri), f"is no MLflow store: {mask_text(first_line(error))}")
        ) from error


def require_store(uri: str) -> None:
    """Raise within seconds where MLflow would try for minutes.

    A server has to answer. A store that is a file has to exist: MLflow itself
    would make an empty one.
    """
    if urlsplit(uri).scheme in ("http", "https"):
        _require_server(uri)
    elif (path := _path_of(uri)) is not None and not path.exists():
        hint = "for a server, write http://HOST:PORT"
        raise BadConfigError(Problem(mask_text(uri), f"there is no {path}", hint))


def find_experiment(client: MlflowClient, name: str) -> Experiment:
    """Return the experiment of that name; raises `BadConfigError` with names like it."""
    where = f"--experiment_name {name}"
    try:
        found = client.get_experiment_by_name(name)
        if found is not None and found.lifecycle_stage == "active":
            return found
        known = _paged(
            lambda token: client.search_experiments(max_results=PAGE_SIZE, page_token=token)
        )
    except MlflowException as error:
        raise BadConfigError(Problem(where, f"cannot be read: {first_line(error)}")) from error
    what = "was deleted" if found is not None else "there is no such experiment"
    raise BadConfigError(Problem(where, what, did_you_mean(name, [item.name for item in known])))


def all_runs(client: MlflowClient, experiment: Experiment) -> list[Run]:
    """Return the runs of an experiment that are not deleted, however many, oldest first.

    Raises `StoreUnreachableError` if the store does not give them.
    """
    order = ["attributes.start_time ASC"]  # runs that begin meanwhile come on a later page
    ids = [experiment.experiment_id]
    try:
        found = _paged(
            lambda token: client.search_runs(
                ids, max_results=PAGE_SIZE, order_by=order, page_token=token
            )
        )
    except MlflowException as error:
        raise StoreUnreachableError(f"the runs cannot be read: {first_line(error)}") from error
    return list({run.info.run_id: run for run in found}.values())


def histories(client: MlflowClient, run: Run) -> Iterator[list[Metric]]:
    """Return all points of each of a run's metrics; the client reads them page by page."""
    for key in sorted(run.data.metrics):
        yield client.get_metric_history(run.info.run_id, key)


def first_line(error: BaseException) -> str:
    """Return what an error says, shortly."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def _paged(fetch: Callable[[str | None], Any]) -> list[Any]:
    """Return what all pages hold; `fetch` takes the token of a page."""
    page = fetch(None)
    items = list(page)
    while page.token:
        page = fetch(page.token)
        items += page
    return items


def _require_server(uri: str) -> None:
    try:
        answer = http_request(
            get_default_host_creds(uri),
            "/health",
            "GET",
            max_retries=0,
            timeout=ANSWER_SECONDS,
            raise_on_status=False,
        )
    except MlflowException as error:
        raise _no_answer(uri, _reason(error)) from error
    if answer.status_code in _GATEWAY_ERRORS:
        raise _no_answer(uri, f"{answer.status_code} {answer.reason}")


def _no_answer(uri: str, why: str) -> StoreUnreachableError:
    return StoreUnreachableError(f"no MLflow server answers at {mask_text(uri)}: {why}")


def _reason(error: MlflowException) -> str:
    """Return the innermost of reasons that are wrapped in one another."""
    return first_line(error).rstrip(")'\"").rpartition(": ")[2]


def _path_of(uri: str) -> Path | None:
    """Return the file or folder that a URI means, if it means one."""
    parts = urlsplit(uri)
    if parts.scheme in ("", "file") and uri != "databricks":
        return Path(unquote(parts.path))
    return sqlite_file(uri)
