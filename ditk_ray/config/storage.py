"""Where sweeps are kept unless a folder is given."""

from __future__ import annotations

import os
from pathlib import Path

STORAGE_VARIABLE = "DITK_RAY_STORAGE"
_FOLDER = "ditk_ray_results"


def default_storage() -> Path:
    """Return the folder of sweeps: $DITK_RAY_STORAGE, else one in the working directory.

    The working directory of a submitted job is removed after it, so there it is one in the
    home directory.
    """
    if chosen := os.environ.get(STORAGE_VARIABLE):
        return Path(chosen).expanduser()
    return Path.home() / _FOLDER if is_submitted_job() else Path(_FOLDER)


def is_submitted_job() -> bool:
    """Say whether this process was started by Ray's job API, which ships its code."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
