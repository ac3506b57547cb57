"""Searchers by name: which there are, and how one is built for a space."""

from __future__ import annotations

import inspect
import math
import re
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from numbers import Real
from typing import Any

from ray.tune.search import Searcher
from ray.tune.search.sample import Function
from threadpoolctl import threadpool_limits

from ditk_ray.config.space import SearchSpace, is_grid
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.points import Choice, Range, completed, read_domain, read_points
from ditk_ray.util.suggest import did_you_mean

DEFAULT_SEARCHER = "random"
SEARCHER_OPTIONS = "searcher_options"
"""The field of a `JobCfg` that holds a searcher's settings."""

_PLAIN = {"int", "float", "bool", "str", "None", "NoneType"}


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
    def startup_trials(self) -> int:
        """How many trials are drawn before a model is made: a quarter, 4 to 10.

        Sweeps in RL are small. With the ten or twenty that the packages take by default,
        many would be over before the model has its say.
        """
        return 10 if self.num_samples is None else min(10, max(4, self.num_samples // 4))

    @property
    def arguments(self) -> dict[str, Any]:
        """What all of Tune's searchers take: one objective, and the known points."""
        points = [dict(point) for point in self.points] or None
        metric, mode = self.objectives[0]
        return {"metric": metric, "mode": mode, "points_to_evaluate": points}


@dataclass(frozen=True)
class SearcherOffer:
    """A searcher by name. One without a `module` draws without a model, by the sweep itself.

    `module` is the one of this package that builds it, `package` what has to be installed,
    and `install` how a user gets that.
    """

    name: str
    summary: str
    module: str | None = None
    package: str | None = None
    install: str = ""

    @property
    def has_many_objectives(self) -> bool:
        return self.name in ("random", "grid", "tpe", "gp", "nsga2")

    @property
    def is_installed(self) -> bool:
        return self.package is None or find_spec(self.package) is not None

    def settings(self) -> dict[str, str]:
        if self.module is None:
            return {"points_per_range": "int"} if self.name == "grid" else {}
        settings: dict[str, str] = self._builder().settings(self.name)
        return settings

    def build(self, request: SearcherRequest) -> Searcher:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of how the packages take choices and narrow ranges
            searcher: Searcher = self._builder().build(self.name, request)
            searcher.set_search_properties(None, None, dict(request.domains))
        return searcher

    def _builder(self) -> Any:
        # Imported only now: its package may be missing, or take seconds to load.
        return import_module(f"ditk_ray.search.{self.module}")


def _extra(name: str, summary: str, module: str, package: str | None = None) -> SearcherOffer:
    install = f"pip install 'ditk-ray[{name}]'"
    return SearcherOffer(name, summary, module, package or name, install)


_TORCH = "`make setup` installs torch with DI-engine"
_OFFERS = (
    SearcherOffer("random", "draws at random; the default"),
    SearcherOffer("grid", "goes through all combinations of a few values each"),
    SearcherOffer("tpe", "learns from a few trials on; first choice for most sweeps", "optuna"),
    _extra("cmaes", "evolution strategy; many trials, mostly numbers", "optuna"),
    SearcherOffer("gp", "Gaussian process; few, expensive trials", "optuna", "torch", _TORCH),
    SearcherOffer("nsga2", "genetic; several objectives and many trials", "optuna"),
    _extra("hyperopt", "the other well-known TPE", "adapters"),
    _extra("bohb", "learns at every rung; goes with the scheduler bohb", "adapters", "hpbandster"),
    _extra("nevergrad", "evolutionary optimizers, chosen by the sweep's size", "adapters"),
    _extra("ax", "Gaussian process of Ax; few, expensive trials", "adapters"),
)

SEARCHERS: Mapping[str, SearcherOffer] = {item.name: item for item in _OFFERS}
"""The searchers that are offered, by name."""


def known_searcher(name: str) -> SearcherOffer:
    if name not in SEARCHERS:
        hint = did_you_mean(name, SEARCHERS)
        raise BadConfigError(Problem("searcher", f"there is no {name!r}", hint))
    offer = SEARCHERS[name]
    if not offer.is_installed:
        what = f"{name!r} needs the package {offer.package}, which is not installed"
        raise BadConfigError(Problem("searcher", what, offer.install))
    return offer


class ModelSearcher(Searcher):
    """Asks a searcher of Tune's for points, and reports their results to it.

    `inner` is completely set up: it has its space, its objectives and its seed. `known` is what
    each parameter can be. What trials report may be without the objective, or have a NaN: the
    searcher is spared that.
    """

    def __init__(self, inner: Searcher, known: Mapping[str, Range | Choice]) -> None:
        super().__init__(metric=inner.metric, mode=inner.mode)
        self.inner = inner
        self._known = known

    @property
    def objectives(self) -> tuple[str, ...]:
        return (self.metric,) if isinstance(self.metric, str) else tuple(self.metric)

    def set_search_properties(
        self, metric: str | None, mode: str | None, config: dict[str, Any], **spec: Any
    ) -> bool:
        """Say that all is well: it knows its space and objectives already."""
        return True

    def suggest(self, trial_id: str) -> Any:
        # The model is computed in the driver, whose cores the trials use.
        with threadpool_limits(limits=1):
            suggested = self.inner.suggest(trial_id)
        if not isinstance(suggested, Mapping):
            return suggested
        return {
            name: item.decoded(suggested[name]) if name in suggested else item.ends[0]
            for name, item in self._known.items()
        }

    def on_trial_result(self, trial_id: str, result: dict[str, Any]) -> None:
        if self._has_scores(result):
            self.inner.on_trial_result(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Tell how a trial ended; without a score it counts as failed."""
        has_failed = error or not self._has_scores(result or {})
        self.inner.on_trial_complete(trial_id, None if has_failed else result, error=has_failed)

    def on_pause(self, trial_id: str) -> None:
        if hasattr(self.inner, "on_pause"):
            self.inner.on_pause(trial_id)

    def on_unpause(self, trial_id: str) -> None:
        if hasattr(self.inner, "on_unpause"):
            self.inner.on_unpause(trial_id)

    @property
    def can_learn(self) -> bool:
        """Whether it accepts evaluations that were made elsewhere."""
        own = type(self.inner).add_evaluated_point
        return own is not Searcher.add_evaluated_point

    def learn(self, params: Mapping[str, Any], values: Sequence[float]) -> None:
        """Tell an evaluation that was made elsewhere; only if it `can_learn`."""
        value = values[0] if len(values) == 1 else list(values)
        self.inner.add_evaluated_point(_encoded(params, self._known), value)

    def save(self, checkpoint_path: str) -> None:
        self.inner.save(checkpoint_path)

    def restore(self, checkpoint_path: str) -> None:
        self.inner.restore(checkpoint_path)

    def _has_scores(self, result: Mapping[str, Any]) -> bool:
        values = [result.get(name) for name in self.objectives]
        return all(isinstance(value, Real) and math.isfinite(value) for value in values)


def build_searcher(
    name: str,
    options: Mapping[str, Any],
    space: SearchSpace,
    objectives: Sequence[tuple[str, str]],
    seed: int | None = None,
    points: Sequence[Mapping[str, Any]] = (),
    num_samples: int | None = None,
) -> ModelSearcher | None:
    """Return a searcher for a space; None for those that the sweep draws itself.

    `objectives` are metrics with `max` or `min`, `points` what is to be evaluated first, and
    `num_samples` how many trials there will be. Raises a `BadConfigError` with all mistakes
    of the same kind, before anything starts.
    """
    offer = known_searcher(name)
    _check_objectives(offer, objectives)
    check_options(SEARCHER_OPTIONS, options, offer.settings())
    given = read_points(points, space)
    if offer.module is None:
        return None
    known = _searchable(space, name)
    first = tuple(_encoded(point, known) for point in completed(given, space, seed))
    domains = {name: item.domain() for name, item in _varying(known).items()}
    request = SearcherRequest(domains, tuple(objectives), options, seed, first, num_samples)
    try:
        return ModelSearcher(offer.build(request), known)
    except (TypeError, ValueError, AssertionError) as error:
        # What a signature does not show: a number that is too small, two that do not agree.
        raise BadConfigError(Problem(f"searcher {name!r}", f"refuses: {error}")) from error


def _searchable(space: SearchSpace, searcher: str) -> dict[str, Range | Choice]:
    sampled = {item.name: item.domain for item in space.parameters if item.is_sampled}
    problems = []
    for name, domain in sampled.items():
        if reason := _refusal(domain):
            what = f"searcher {searcher!r} cannot take {reason[0]}"
            problems.append(Problem(name, what, f"{reason[1]}, or use the searcher 'random'"))
    read = {name: read_domain(domain) for name, domain in sampled.items()}
    known = {name: item for name, item in read.items() if item is not None}
    if not problems and not _varying(known):
        what = f"searcher {searcher!r} has nothing to search: nothing varies"
        problems = [Problem("space", what)]
    if problems:
        raise BadConfigError(problems)
    return known


def _varying(known: Mapping[str, Range | Choice]) -> dict[str, Range | Choice]:
    return {name: item for name, item in known.items() if len(item.ends) > 1}


def _encoded(point: Mapping[str, Any], known: Mapping[str, Range | Choice]) -> dict[str, Any]:
    """Return a point of the space as a searcher would suggest it.

    The packages know ranges of numbers and choices among plain values. So a choice among lists
    or dicts is given to them by the values' texts, a step is left out and rounded to afterwards,
    and what has only one value is not given to them at all.
    """
    return {name: item.encoded(point[name]) for name, item in _varying(known).items()}


def _refusal(domain: Any) -> tuple[str, str] | None:
    if is_grid(domain):
        return "a grid_search", "write tune.choice"
    if isinstance(domain, Function):
        return "a sample_from", "write a domain"
    if read_domain(domain) is None:
        return "a distribution without bounds", "write tune.uniform or tune.loguniform"
    return None


def _check_objectives(offer: SearcherOffer, objectives: Sequence[tuple[str, str]]) -> None:
    if len(objectives) > 1 and not offer.has_many_objectives:
        able = ", ".join(item.name for item in SEARCHERS.values() if item.has_many_objectives)
        what = f"{offer.name!r} takes one objective, not {len(objectives)}"
        raise BadConfigError(Problem("searcher", what, f"those that take several: {able}"))


def settings_of(function: Callable[..., Any], without: Collection[str] = ()) -> dict[str, str]:
    """Return the names of what a function takes, each with its annotation as text.

    `without` are those that the sweep itself sets.
    """
    return {
        item.name: _annotation(item)
        for item in inspect.signature(function).parameters.values()
        if item.kind in (item.POSITIONAL_OR_KEYWORD, item.KEYWORD_ONLY)
        and item.name not in {"self", *without}
    }


def check_options(where: str, options: Mapping[str, Any], known: Mapping[str, str]) -> None:
    """Raise a `BadConfigError` that lists every option that is unknown or of a wrong type."""
    problems = []
    for name, value in options.items():
        if name not in known:
            hint = did_you_mean(name, known) if known else "it has no settings"
            problems.append(Problem(f"{where}.{name}", "there is no such setting", hint))
        elif not _fits(value, known[name]):
            what = f"is {value!r}; it has to be: {known[name]}"
            problems.append(Problem(f"{where}.{name}", what))
    if problems:
        raise BadConfigError(problems)


def _annotation(item: inspect.Parameter) -> str:
    if item.annotation is item.empty:
        return ""
    if isinstance(item.annotation, type):
        return item.annotation.__name__
    return str(item.annotation).replace("typing.", "").strip("'")


def _fits(value: Any, annotation: str) -> bool:
    names = set(re.findall(r"\w+", annotation.replace("Optional", "None"))) - {"Union"}
    if not names or not names <= _PLAIN:
        return True
    kind = type(value).__name__
    if kind == "NoneType":
        return bool(names & {"None", "NoneType"})
    return kind in names or (kind == "int" and "float" in names)
