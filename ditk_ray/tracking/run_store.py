"""MLflow's store as the delivery of a sweep needs it: every call can be made twice.

A call whose answer was lost is made again. A run is found again by its key, a metric
that is there already is not added (MLflow's database knows it by its time, step and
value), tags and files replace themselves.
"""

from __future__ import annotations

import getpass
import hashlib
import posixpath
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException
from mlflow.utils.mlflow_tags import MLFLOW_PARENT_RUN_ID, MLFLOW_RUN_NAME, MLFLOW_USER
from mlflow.utils.validation import (
    MAX_ENTITY_KEY_LENGTH,
    MAX_PARAM_VAL_LENGTH,
    MAX_TAG_VAL_LENGTH,
)

from ditk_ray.tracking.store import artifact_location, opened_once

KEY_TAG = "ditk_ray.key"
"""The tag by which a run is found again: the sweep's id, and the trial's for a child."""

_LARGEST_STEP = 2**63 - 1
_NOT_IN_NAMES = re.compile(r"[^\w\-. /]")
# Not BAD_REQUEST, which a server also says when its database is in passing trouble.
_REFUSALS = {
    "INVALID_PARAMETER_VALUE",
    "INVALID_STATE",
    "MALFORMED_REQUEST",
    "RESOURCE_DOES_NOT_EXIST",
}


class RunStore:
    """The runs of one experiment in one MLflow store. Methods raise what MLflow raises."""

    def __init__(self, uri: str, experiment: str, folder: Path) -> None:
        with opened_once(uri):
            self._client = MlflowClient(tracking_uri=uri)
            self.experiment_id = self._experiment(uri, experiment, folder)

    def find(self, key: str) -> str | None:
        """Return the id of the run with this key, if there is one."""
        wanted = f"tags.`{KEY_TAG}` = '{_quoted(key)}'"
        found = self._client.search_runs([self.experiment_id], wanted, ViewType.ALL, 1)
        return str(found[0].info.run_id) if found else None

    def has(self, run: str) -> bool:
        """Say whether there is a run with this id."""
        try:
            self._client.get_run(run)
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
        return str(self._client.create_run(self.experiment_id, time, tags).info.run_id)

    def log_params(self, run: str, params: Sequence[Param]) -> None:
        """Log parameters, as many as MLflow takes at once."""
        self._client.log_batch(run, params=list(params))

    def log_tags(self, run: str, tags: Sequence[RunTag]) -> None:
        """Log tags, as many as MLflow takes at once."""
        self._client.log_batch(run, tags=list(tags))

    def log_metrics(self, run: str, metrics: Sequence[Metric]) -> None:
        """Log metrics, as many as MLflow takes at once."""
        self._client.log_batch(run, metrics=list(metrics))

    def upload(self, run: str, file: Path, place: str | None = None) -> None:
        """Put a file among the run's artifacts, in the folder `place`."""
        self._client.log_artifact(run, str(file), place)

    def reopen(self, run: str) -> None:
        """Note that a run that had ended goes on."""
        self._client.update_run(run, status="RUNNING")

    def end(self, run: str, status: str, time: int) -> None:
        """Note how and when a run ended."""
        self._client.set_terminated(run, status, time)

    def _experiment(self, uri: str, name: str, folder: Path) -> str:
        found = self._client.get_experiment_by_name(name)
        if found is None:
            place = artifact_location(uri, folder, name)
            try:
                return str(self._client.create_experiment(name, place))
            except MlflowException as error:  # another sweep was quicker
                if error.error_code != "RESOURCE_ALREADY_EXISTS":
                    raise
                found = self._client.get_experiment_by_name(name)
        if found.lifecycle_stage == "deleted":
            self._client.restore_experiment(found.experiment_id)
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
    """Return the numbers among the values as MLflow's metrics."""
    return [
        Metric(mlflow_name(name), float(value), time, min(step, _LARGEST_STEP))
        for name, value in values.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and _fits(value)
    ]


def _fits(value: Any) -> bool:
    """Say whether a number is one that a float can hold."""
    return isinstance(value, float) or abs(value) < 2**1023


def params_of(values: Mapping[str, Any]) -> list[Param]:
    """Return values as MLflow's parameters."""
    return [Param(mlflow_name(n), clipped(v, MAX_PARAM_VAL_LENGTH)) for n, v in values.items()]


def tags_of(values: Mapping[str, Any]) -> list[RunTag]:
    """Return values as MLflow's tags."""
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
