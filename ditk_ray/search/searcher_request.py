"""What a searcher is built from, and how one is offered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ray.tune.search import Searcher

OPTIONS = "searcher_options"
"""The field of a `JobCfg` that holds a searcher's settings."""

_STARTUP_SHARE = 4
_STARTUP_MOST = 10
_STARTUP_LEAST = 4


@dataclass(frozen=True)
class SearcherRequest:
    """What to search, for what. Domains and points are as the packages can take them."""

    domains: Mapping[str, Any]
    objectives: tuple[tuple[str, str], ...]
    options: Mapping[str, Any]
    seed: int | None
    points: tuple[Mapping[str, Any], ...]
    num_samples: int | None

    @property
    def metric(self) -> str:
        """The name of the first objective."""
        return self.objectives[0][0]

    @property
    def mode(self) -> str:
        """Whether the first objective is maximised or minimised."""
        return self.objectives[0][1]

    @property
    def startup_trials(self) -> int:
        """How many trials are drawn before a model is made: a quarter, 4 to 10.

        Sweeps in RL are small. With the ten or twenty that the packages take by default,
        many would be over before the model has its say.
        """
        if self.num_samples is None:
            return _STARTUP_MOST
        return min(_STARTUP_MOST, max(_STARTUP_LEAST, self.num_samples // _STARTUP_SHARE))

    def handed_points(self) -> list[dict[str, Any]] | None:
        """Return the known points as Tune's searchers take them."""
        return [dict(point) for point in self.points] or None


@dataclass(frozen=True)
class SearcherOffer:
    """A searcher by name. One without `build` draws without a model, by the sweep itself.

    `settings` says what its options may be, `package` what it needs to be importable, and
    `install` how a user gets that.
    """

    name: str
    summary: str
    build: Callable[[SearcherRequest], Searcher] | None = None
    settings: Callable[[], dict[str, str]] = dict
    package: str | None = None
    install: str = ""
    has_many_objectives: bool = False

    @property
    def is_installed(self) -> bool:
        """Whether its package can be imported."""
        return self.package is None or find_spec(self.package) is not None
