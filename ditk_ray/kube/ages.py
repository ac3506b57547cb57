"""How long ago something was, from the times that Kubernetes writes."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from ditk_ray.kube.objects import Manifest

_NAMES = {86400: "d", 3600: "h", 60: "m", 1: "s"}
# From so many seconds on an age is told in one unit, and what is left in another.
_SCALES = (
    (8 * 86400, 86400, None),
    (2 * 86400, 86400, 3600),
    (8 * 3600, 3600, None),
    (3 * 3600, 3600, 60),
    (600, 60, None),
    (120, 60, 1),
    (0, 1, None),
)


def read_time(stamp: str) -> datetime | None:
    """Return the time of a stamp; None if it is none."""
    try:
        found = datetime.fromisoformat(stamp)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def moment(stamp: Any) -> float:
    """Return a stamp as a number, by which times can be compared; 0 for one that is none.

    Some stamps have fractions of a second and some have not: as texts they cannot be compared.
    """
    found = read_time(str(stamp or ""))
    return found.timestamp() if found else 0.0


def seconds_since(stamp: str, now: datetime) -> float:
    """Return how long ago a stamp is; 0 for one of the future, or that is none."""
    found = read_time(stamp)
    return max(0.0, (now - found).total_seconds()) if found else 0.0


def age_of(manifest: Manifest, now: datetime) -> float:
    """Return for how many seconds an object has been there."""
    return seconds_since(str(manifest["metadata"].get("creationTimestamp", "")), now)


def show_age(seconds: float) -> str:
    """Write an age as kubectl does: `45s`, `3m20s`, `26h`, `9d`."""
    whole = max(0, int(seconds))
    size, smaller = next((size, rest) for least, size, rest in _SCALES if whole >= least)
    told = f"{whole // size}{_NAMES[size]}"
    left = whole % size // smaller if smaller else 0
    return f"{told}{left}{_NAMES[smaller]}" if smaller and left else told
