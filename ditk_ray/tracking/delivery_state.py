"""How far a sweep's journal was delivered to a store."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ditk_ray.config.whole_file import write_whole
from ditk_ray.tracking.journal import TRACKING_FOLDER


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
    """Return where the state of the delivery to a store is kept."""
    name = hashlib.sha256(uri.encode()).hexdigest()[:8]
    return folder / TRACKING_FOLDER / f"mlflow-{name}.json"


def read_state(folder: Path, uri: str) -> DeliveryState:
    """Return how far the delivery to a store has come."""
    try:
        return DeliveryState(**json.loads(state_path(folder, uri).read_text()))
    except (OSError, ValueError, TypeError):
        return DeliveryState(uri)


def write_state(folder: Path, state: DeliveryState) -> None:
    """Keep the state, in one step."""
    write_whole(state_path(folder, state.uri), json.dumps(asdict(state)))
