"""MLflow's side: what a journal's events say of each run, the client that writes it, and reading.

Every call that writes can be made twice: one whose answer was lost is made again. A run
is found again by its key, a metric that is there already is not added (MLflow's database
knows it by its time, step and value), tags and files replace themselves.
"""

from __future__ import annotations

import getpass
import hashlib
import json
import logging
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, Run, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.utils import get_results_from_paginated_fn
from mlflow.utils.credentials import get_default_host_creds
from mlflow.utils.mlflow_tags import (
    MLFLOW_PARENT_RUN_ID,
    MLFLOW_RUN_NAME,
    MLFLOW_RUN_NOTE,
    MLFLOW_USER,
)
from mlflow.utils.rest_utils import http_request
from mlflow.utils.validation import (
    MAX_ENTITY_KEY_LENGTH,
    MAX_PARAM_VAL_LENGTH,
    MAX_TAG_VAL_LENGTH,
)

from ditk_ray.config.terms import show_description
from ditk_ray.errors import BadConfigError, DitkRayError, Problem, StoreUnreachableError, first_line
from ditk_ray.provenance.secrets import mask_text
from ditk_ray.record.journal import Event
from ditk_ray.record.record import SweepStatus, TrialState
from ditk_ray.tracking.recording import artifact_location, opened_once, sqlite_file
from ditk_ray.util.dotted import leaves
from ditk_ray.util.plain import json_text
from ditk_ray.util.suggest import did_you_mean

KEY_TAG = "ditk_ray.key"
"""The tag by which a run is found again: the sweep's id, and the trial's for a child."""

ANSWER_SECONDS = 10
PAGE_SIZE = 1000
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")
# Not BAD_REQUEST, which a server also says when its database is in passing trouble.
_REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "MALFORMED_REQUEST",
    "RESOURCE_DOES_NOT_EXIST",
}


# Of trials and of sweeps; the others run.
_STATUSES = {
    **dict.fromkeys(("succeeded", "stopped", "pruned", "finished"), "FINISHED"),
    **{"failed": "FAILED", "interrupted": "KILLED"},
}

PARENT = ""
"""The place of the sweep's own run among those of its trials."""

TAG = "ditk_ray."
_log = logging.getLogger(__name__)


class RunStore:
    """The runs of one experiment in one MLflow store. Methods raise what MLflow raises.

    What needs no care is asked of the `client` itself.
    """

    def __init__(self, uri: str, experiment: str, folder: Path) -> None:
        with opened_once(uri):
            self.client = MlflowClient(tracking_uri=uri)
            self.experiment_id = self._experiment(uri, experiment, folder)

    def find(self, key: str) -> str | None:
        """Return the id of the run with this key, if there is one."""
        wanted = f"tags.`{KEY_TAG}` = '{_quoted(key)}'"
        found = self.client.search_runs([self.experiment_id], wanted, ViewType.ALL, 1)
        return str(found[0].info.run_id) if found else None

    def has(self, run: str) -> bool:
        try:
            self.client.get_run(run)
        except MlflowException as error:
            if error.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
            return False
        return True

    def create(self, key: str, name: str, time: int, parent: str = "") -> str:
        """Make a run, below another one if that is given, and return its id."""
        tags = {KEY_TAG: _quoted(key), MLFLOW_RUN_NAME: name, MLFLOW_USER: _user()}
        if parent:
            tags[MLFLOW_PARENT_RUN_ID] = parent
        return str(self.client.create_run(self.experiment_id, time, tags).info.run_id)

    def _experiment(self, uri: str, name: str, folder: Path) -> str:
        found = self.client.get_experiment_by_name(name)
        if found is None:
            place = artifact_location(uri, folder, name)
            try:
                return str(self.client.create_experiment(name, place))
            except MlflowException as error:  # another sweep was quicker
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self.client.get_experiment_by_name(name)
        if found.lifecycle_stage == "deleted":
            self.client.restore_experiment(found.experiment_id)
        return str(found.experiment_id)


def _quoted(key: str) -> str:
    return key.replace("'", "_")


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for it
        return ""


def is_refused(error: Exception) -> bool:
    """Say whether MLflow will never take what it was sent, as opposed to being away."""
    return isinstance(error, MlflowException) and error.error_code in _REFUSALS


def metrics_of(values: Mapping[str, Any], step: int, time: int) -> list[Metric]:
    return [
        Metric(mlflow_name(name), float(value), time, min(step, 2**63 - 1))
        for name, value in values.items()
        if isinstance(value, float)
        or (isinstance(value, int) and not isinstance(value, bool) and abs(value) < 2**1023)
    ]


def params_of(values: Mapping[str, Any]) -> list[Param]:
    return [Param(mlflow_name(n), clipped(v, MAX_PARAM_VAL_LENGTH)) for n, v in values.items()]


def tags_of(values: Mapping[str, Any]) -> list[RunTag]:
    return [RunTag(mlflow_name(n), clipped(v, MAX_TAG_VAL_LENGTH)) for n, v in values.items()]


def mlflow_name(name: str) -> str:
    """Return a name that MLflow takes: its letters, and not too long.

    One that had to be changed ends in a hash, so that no two become the same.
    """
    allowed = _NOT_IN_NAMES.sub("_", name)
    if posixpath.normpath(allowed) != allowed or allowed.startswith(("/", ".")):
        allowed = "_" + allowed.replace("/", "_")
    if allowed == name and len(name) <= MAX_ENTITY_KEY_LENGTH:
        return name
    end = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:4]
    return f"{allowed[: MAX_ENTITY_KEY_LENGTH - 5]}_{end}"


def clipped(value: Any, length: int) -> str:
    """Return a value as text that every store takes, cut where MLflow would refuse it."""
    text = str(value).encode("utf-8", "replace").decode().replace("\0", "")
    return text if len(text) <= length else text[: length - 3] + "..."


class StoredExperiment:
    """The runs of an experiment that are not deleted, however many, oldest first; to be read.

    Making one raises, within seconds, `StoreUnreachableError` if no store answers, and
    `BadConfigError` if there is none or the experiment is not in it; `DitkRayError` if it is
    empty.
    """

    def __init__(self, uri: str, name: str) -> None:
        self._uri = uri
        self.require_store()
        try:
            self._client = MlflowClient(tracking_uri=uri)
        except Exception as error:  # databases and their drivers have errors of their own
            what = f"is not an MLflow store: {masked_line(error)}"
            raise BadConfigError(Problem(mask_text(uri), what)) from error
        self.runs = self._all_runs(self._find(name))
        if not self.runs:
            raise DitkRayError(f"experiment {name!r} has no runs: nothing to export")

    def history(self, run: Run, metric: str) -> list[Metric]:
        """Return all points of one of a run's metrics; the client reads them page by page."""
        return list(self._client.get_metric_history(run.info.run_id, metric))

    def require_store(self) -> None:
        """Raise within seconds where MLflow would try for minutes.

        A server has to answer. A store that is a file has to exist: MLflow itself
        would make an empty one.
        """
        parts = urlsplit(self._uri)
        path = sqlite_file(self._uri)
        if parts.scheme in ("http", "https"):
            _require_server(self._uri)
        elif parts.scheme in ("", "file") and self._uri != "databricks":
            path = Path(unquote(parts.path))
        if path is not None and not path.exists():
            hint = "for a server, write http://HOST:PORT"
            raise BadConfigError(Problem(mask_text(self._uri), f"there is no {path}", hint))

    def _find(self, name: str) -> str:
        where = f"--experiment_name {name}"
        try:
            found = self._client.get_experiment_by_name(name)
            if found is not None and found.lifecycle_stage == "active":
                return str(found.experiment_id)
            known = self._client.search_experiments(max_results=PAGE_SIZE)
        except MlflowException as error:
            raise BadConfigError(Problem(where, f"cannot be read: {masked_line(error)}")) from error
        what = "was deleted" if found is not None else "there is no such experiment"
        hint = did_you_mean(name, [item.name for item in known])
        raise BadConfigError(Problem(where, what, hint))

    def _all_runs(self, experiment: str) -> list[Run]:
        def page(size: int, token: str | None) -> Any:
            order = ["attributes.start_time ASC"]  # those that begin meanwhile come later
            view = ViewType.ACTIVE_ONLY
            return self._client.search_runs([experiment], "", view, size, order, token)

        try:
            found = get_results_from_paginated_fn(page, PAGE_SIZE)
        except MlflowException as error:
            raise StoreUnreachableError(f"the runs cannot be read: {masked_line(error)}") from error
        return list({run.info.run_id: run for run in found}.values())


def _require_server(uri: str) -> None:
    why = ""
    try:
        host = get_default_host_creds(uri)  # which refuses some settings of the environment
        answer = http_request(
            host, "/health", "GET", max_retries=0, timeout=ANSWER_SECONDS, raise_on_status=False
        )
        if answer.status_code in (502, 503, 504):  # a gateway's
            why = f"{answer.status_code} {answer.reason}"
    except MlflowException as error:
        # Of reasons that are wrapped in one another, the innermost says it.
        why = first_line(error).rstrip(")'\"").rpartition(": ")[2]
    if why:
        raise StoreUnreachableError(f"no MLflow server answers at {mask_text(uri)}: {why}")


def masked_line(error: BaseException) -> str:
    """Return how an error begins, without the password of a URL that it may name."""
    return mask_text(first_line(error))


@dataclass
class RunUpdate:
    """All that some events say of one run."""

    trial: str
    time: int
    """When the first of them happened; a run that is made by it starts then."""
    params: dict[str, Any] = field(default_factory=dict)
    """Logged when the run is made: MLflow does not let them change."""
    tags: dict[str, Any] = field(default_factory=dict)
    metrics: list[Metric] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    status: str | None = None
    """How the run ended, or RUNNING if it continues after an end."""
    ended: int = 0
    best_trial: str = ""
    """Of the sweep, known at its end."""


class UpdateCollector:
    """Puts consecutive events together into an update for each run they are about."""

    def __init__(self) -> None:
        self._updates: dict[str, RunUpdate] = {}
        self._endings: list[RunUpdate] = []

    def collect(self, events: Iterable[Event]) -> list[RunUpdate]:
        """Return the updates in the order to make them.

        The parent comes first, since its children refer to it, but its end comes
        last: the sweep's run is not over before all of its trials' are.
        """
        for event in events:
            take = getattr(self, f"_take_{event['kind']}", None)
            if take is None:  # a later version may know more kinds
                continue
            try:
                take(event, self._update(event.get("trial", PARENT), event["time"]))
            except Exception as error:
                # One that cannot be understood must not hold up those after it.
                _log.warning("passed over %s: %s: %s", event["kind"], type(error).__name__, error)
        updates = sorted(self._updates.values(), key=lambda update: update.trial != PARENT)
        return [*updates, *self._endings]

    def _update(self, trial: str, time: int) -> RunUpdate:
        return self._updates.setdefault(trial, RunUpdate(trial, time))

    def _take_sweep(self, event: Event, update: RunUpdate) -> None:
        job = event["job"]
        self._endings = []  # it continues
        update.status = "RUNNING"
        update.params |= {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in leaves({**job, "space": None})
            if value is not None and value != {}
        }
        update.params |= {
            f"space.{name}": show_description(item) for name, item in job.get("space", {}).items()
        }
        told = {name: event[name] for name in ("metric", "mode", "folder")}
        told |= {"sweep": event["name"], "state": SweepStatus.RUNNING}
        update.tags |= _prefixed(TAG, told)
        update.texts["job.json"] = json_text(job, indent=1)

    def _take_trial(self, event: Event, update: RunUpdate) -> None:
        update.params |= event["params"]
        update.tags |= _prefixed(TAG, event["tags"])
        if any(len(str(value)) > MAX_PARAM_VAL_LENGTH for value in event["params"].values()):
            update.texts["params.json"] = json_text(event["params"], indent=1)

    def _take_metrics(self, event: Event, update: RunUpdate) -> None:
        update.metrics += metrics_of(event["values"], event["step"], event["time"])

    def _take_change(self, event: Event, update: RunUpdate) -> None:
        """Keep what a scheduler changed: the last values as tags, all of them as metrics."""
        named = _prefixed("param.", event["params"])
        update.tags |= _prefixed(TAG, named)
        if event["before"] is not None:  # where the first change came from belongs to it
            before = _prefixed("param.", event["before"])
            update.metrics += metrics_of(before, 0, event["time"])
        update.metrics += metrics_of(named, event["step"], event["time"])

    def _take_state(self, event: Event, update: RunUpdate) -> None:
        state = TrialState(event["state"])
        update.tags |= {f"{TAG}state": state, **_prefixed(TAG, event["tags"])}
        update.status = _STATUSES.get(state, "RUNNING")
        update.ended = event["time"]

    def _take_progress(self, event: Event, update: RunUpdate) -> None:
        best = event["best"]
        finished = sum(n for state, n in event["counts"].items() if TrialState(state).is_final)
        # Those that have become none are recorded, too.
        counts = {f"trials_{state}": event["counts"].get(state, 0) for state in TrialState}
        update.metrics += metrics_of(counts, finished, event["time"])
        if best is not None:
            score = {f"best_{best['metric']}": best["score"]}
            update.metrics += metrics_of(score, finished, event["time"])
            update.tags[f"{TAG}best_trial"] = best["trial"]
            update.tags |= _prefixed(f"{TAG}best.", best["params"])
            update.tags[MLFLOW_RUN_NOTE] = _note_on(best, event["counts"])
        if event.get("pareto"):
            update.tags[f"{TAG}pareto_set"] = ", ".join(event["pareto"])

    def _take_end(self, event: Event, update: RunUpdate) -> None:
        status = SweepStatus(event["status"])
        time, tags = event["time"], {f"{TAG}state": status}
        ending = RunUpdate(PARENT, time, tags=tags, status=_STATUSES[status], ended=time)
        ending.best_trial = event["best_trial"]
        self._endings = [ending]
        for trial in event["unfinished"]:
            child = self._update(trial, event["time"])
            child.status, child.ended = "KILLED", event["time"]


def _note_on(best: Mapping[str, Any], counts: Mapping[str, int]) -> str:
    shown = ", ".join(f"{number} {state}" for state, number in sorted(counts.items()))
    rows = "".join(f"| `{name}` | {value} |\n" for name, value in best["params"].items())
    return (
        f"Best: {best['trial']}, {best['metric']} {best['score']:g}. Trials: {shown}.\n\n"
        f"| parameter | of the best |\n|---|---|\n{rows}"
    )


def _prefixed(prefix: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {prefix + name: value for name, value in values.items()}
