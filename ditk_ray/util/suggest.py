"""Finding the name a person meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def nearest_names(name: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """Return up to `limit` of the `known` names that look like `name`, best first."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower(), by_folded, n=limit, cutoff=0.55)
    return [by_folded[folded] for folded in close]


def nearest_path(path: str, known: Iterable[str]) -> str | None:
    """Return the dotted path among `known` that `path` was most likely meant to be.

    A path whose last part is right but that stands in the wrong place
    (`policy.batch_size` for `policy.learn.batch_size`) is more likely than one
    that is merely spelled alike.
    """
    last = path.rpartition(".")[2]

    def likeness(candidate: str) -> float:
        whole = difflib.SequenceMatcher(None, path, candidate).ratio()
        end = difflib.SequenceMatcher(None, last, candidate.rpartition(".")[2]).ratio()
        return whole + end

    best = max(known, key=likeness, default=None)
    return best if best is not None and likeness(best) > 1.1 else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence with the names like `name`, or with all of them if few."""
    known = sorted(known)
    close = nearest_names(name, known)
    if close:
        return "did you mean " + " or ".join(repr(item) for item in close) + "?"
    if known and len(known) <= 30:
        return "known are: " + ", ".join(known)
    return ""
