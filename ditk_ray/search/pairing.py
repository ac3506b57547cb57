"""Which searchers and schedulers can work together."""

from __future__ import annotations

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.searchers import SEARCHERS

_BOHB = "bohb"
_CHANGING = ("pbt", "pb2")
_WAITING = "hyperband"


def check_pairing(searcher: str, scheduler: str) -> None:
    """Raise a `BadConfigError` if a searcher cannot work with a scheduler, both by name."""
    if searcher == _BOHB and scheduler != _BOHB:
        what = "'bohb' learns from what its own scheduler tells it"
        raise BadConfigError(Problem("searcher", what, "add the scheduler 'bohb'"))
    if scheduler == _BOHB and searcher != _BOHB:
        what = "'bohb' works with the searcher of that name only"
        raise BadConfigError(Problem("scheduler", what, "add it, or use 'hyperband'"))
    if scheduler in _CHANGING and SEARCHERS[searcher].build is not None:
        what = f"{scheduler!r} changes parameters on the way; {searcher!r} would learn nonsense"
        raise BadConfigError(Problem("searcher", what, "use the searcher 'random' with it"))
    if scheduler == _WAITING and SEARCHERS[searcher].build is not None:
        what = f"'hyperband' wants all trials at once, of which {searcher!r} could learn nothing"
        raise BadConfigError(Problem("searcher", what, "use 'asha' with it, or 'bohb' for both"))
