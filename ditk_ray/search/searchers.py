"""Searchers by name: which there are, and how one is built for a space."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any

from ray.tune.search import Searcher

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.space import SearchSpace
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.model_searcher import ModelSearcher
from ditk_ray.search.options import check_options
from ditk_ray.search.points import completed, read_points
from ditk_ray.search.searcher_request import OPTIONS, SearcherOffer, SearcherRequest
from ditk_ray.search.space_codec import SpaceCodec

DEFAULT_SEARCHER = "random"


def _from(module: str, function: str, *arguments: Any) -> Any:
    """Call a function of a module that is imported only now, as its package may be missing."""
    return getattr(import_module(f"ditk_ray.search.{module}"), function)(*arguments)


def _optuna(name: str, sampler: str, summary: str, **others: Any) -> SearcherOffer:
    return SearcherOffer(
        name,
        summary,
        partial(_from, "optuna_searchers", f"build_{name}"),
        partial(_from, "optuna_searchers", "sampler_settings", sampler),
        **others,
    )


def _extra(name: str, package: str, summary: str) -> SearcherOffer:
    return SearcherOffer(
        name,
        summary,
        partial(_from, f"{name}_searcher", f"build_{name}"),
        partial(_from, f"{name}_searcher", f"{name}_settings"),
        package=package,
        install=f"pip install 'ditk-ray[{name}]'",
    )


_OFFERS = (
    SearcherOffer("random", "draws at random; the default", has_many_objectives=True),
    SearcherOffer(
        "grid",
        "goes through all combinations of a few values each",
        settings=lambda: {"points_per_range": "int"},
        has_many_objectives=True,
    ),
    _optuna(
        "tpe",
        "TPESampler",
        "learns from a few trials on; first choice for most sweeps",
        has_many_objectives=True,
    ),
    _optuna(
        "cmaes",
        "CmaEsSampler",
        "evolution strategy; many trials, mostly numbers",
        package="cmaes",
        install="pip install 'ditk-ray[cmaes]'",
    ),
    _optuna(
        "gp",
        "GPSampler",
        "Gaussian process; few, expensive trials",
        package="torch",
        install="`make setup` installs torch with DI-engine",
        has_many_objectives=True,
    ),
    _optuna(
        "nsga2",
        "NSGAIISampler",
        "genetic; several objectives and many trials",
        has_many_objectives=True,
    ),
    _extra("hyperopt", "hyperopt", "the other well-known TPE"),
    _extra("bohb", "hpbandster", "learns at every rung; goes with the scheduler bohb"),
    _extra("nevergrad", "nevergrad", "evolutionary optimizers, chosen by the sweep's size"),
    _extra("ax", "ax", "Gaussian process of Ax; few, expensive trials"),
)

SEARCHERS: Mapping[str, SearcherOffer] = MappingProxyType({item.name: item for item in _OFFERS})
"""The searchers that are offered, by name."""

NOT_OFFERED: Mapping[str, str] = MappingProxyType(
    {
        "bayesopt": "Ray Tune's BayesOptSearch uses `UtilityFunction`, which "
        "bayesian-optimization has not had since its release 2 (it is at 3.4); use 'gp', which "
        "also takes whole numbers, choices and logarithmic ranges",
        "hebo": "HEBO 0.3.6 asks for numpy below 1.25 and pymoo 0.6.0, which cannot be "
        "installed beside pandas 3 and its numpy of at least 1.26; use 'gp' or 'ax'",
    }
)
"""The names that Ray Tune has a searcher for that is not offered, each with the reason."""


def known_searcher(name: str) -> SearcherOffer:
    """Return the offer of this name, or raise a `BadConfigError` that says what to do."""
    if name in NOT_OFFERED:
        raise BadConfigError(Problem("searcher", f"{name!r} is not offered", NOT_OFFERED[name]))
    if name not in SEARCHERS:
        hint = did_you_mean(name, SEARCHERS)
        raise BadConfigError(Problem("searcher", f"there is no {name!r}", hint))
    offer = SEARCHERS[name]
    if not offer.is_installed:
        what = f"{name!r} needs the package {offer.package}, which is not installed"
        raise BadConfigError(Problem("searcher", what, offer.install))
    return offer


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
    check_options(OPTIONS, options, offer.settings())
    known = read_points(points, space)
    if offer.build is None:
        return None
    codec = SpaceCodec.of(space)
    problems = list(codec.problems(name))
    if problems:
        raise BadConfigError(problems)
    request = SearcherRequest(
        codec.domains(),
        tuple(objectives),
        options,
        seed,
        tuple(codec.encoded(point) for point in completed(known, space, seed)),
        num_samples,
    )
    return ModelSearcher(_built(offer, request), codec)


def _check_objectives(offer: SearcherOffer, objectives: Sequence[tuple[str, str]]) -> None:
    if len(objectives) > 1 and not offer.has_many_objectives:
        able = ", ".join(item.name for item in SEARCHERS.values() if item.has_many_objectives)
        what = f"{offer.name!r} takes one objective, not {len(objectives)}"
        raise BadConfigError(Problem("searcher", what, f"those that take several: {able}"))


def _built(offer: SearcherOffer, request: SearcherRequest) -> Searcher:
    assert offer.build is not None
    try:
        return offer.build(request)
    except (TypeError, ValueError, AssertionError) as error:
        # What a signature cannot tell: a number that is too small, two that do not agree.
        raise BadConfigError(Problem(f"searcher {offer.name!r}", f"refuses: {error}")) from error
