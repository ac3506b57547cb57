"""Where the values of new trials come from: the space itself, or a searcher."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import pickle
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from ray.tune.search import Searcher
from ray.tune.search.sample import _BackwardsCompatibleNumpyRng
from ray.tune.search.variant_generator import generate_variants

from ditk_ray.config.whole_file import replace_file
from ditk_ray.search.model_searcher import ModelSearcher
from ditk_ray.sweep.ledger import STATE_FOLDER

_log = logging.getLogger(__name__)

SEARCHER_FILE = "searcher.pkl"
_QUICK_SECONDS = 0.1
_SHARE = 20
"""Saving a searcher that is not quick may take one part in so many of the event loop's time."""

Drawn = dict[str, Any]


class Exhausted(Exception):  # noqa: N818 - as StopIteration
    """There is nothing more to draw."""


class Draws(Protocol):
    """Draws the values of trials and learns how they did; used on Tune's event loop only."""

    def draw(self, trial: str) -> Drawn | None:
        """Return the values for a new trial, None if it has to wait; raises `Exhausted`."""

    def reported(self, trial: str, result: Mapping[str, Any]) -> None:
        """Learn of a trial's evaluation."""

    def ended(self, trial: str, drawn: Drawn, result: Mapping[str, Any] | None) -> None:
        """Learn how a trial ended; without a result it failed or was pruned."""


class SpaceDraws:
    """Draws at random from the space, and goes through its grids.

    The same seed draws the same trials in the same order, so a sweep that goes on
    passes over as many as it has.
    """

    def __init__(
        self,
        space: Mapping[str, Any],
        seed: int,
        points: Sequence[Mapping[str, Any]] = (),
        passed: int = 0,
    ) -> None:
        self._variants = itertools.islice(_variants(space, seed, points), passed, None)

    def draw(self, trial: str) -> Drawn | None:
        """Return the next values; there is no end to them."""
        return next(self._variants)

    def reported(self, trial: str, result: Mapping[str, Any]) -> None:
        """Learn nothing: draws do not depend on each other."""

    def ended(self, trial: str, drawn: Drawn, result: Mapping[str, Any] | None) -> None:
        """Learn nothing."""


def _variants(
    space: Mapping[str, Any], seed: int, points: Sequence[Mapping[str, Any]]
) -> Iterator[Drawn]:
    state = _BackwardsCompatibleNumpyRng(seed)
    for point in itertools.chain(points, itertools.repeat({})):
        spec = {"config": {**space, **point}}
        for _, resolved in generate_variants(spec, random_state=state):
            yield resolved["config"]


class SearcherDraws:
    """Asks one of Ray Tune's searchers, and keeps its state on disk.

    The state is saved after each question and each answer, or less often if it has grown so
    large that this would take more than a twentieth of the time: what is missing in it is in
    the ledger.
    """

    def __init__(self, searcher: Searcher, folder: Path) -> None:
        self.searcher = searcher
        self._file = folder / STATE_FOLDER / SEARCHER_FILE
        self._known: set[str] = set()
        self._learned: set[str] = set()
        self._reopened: set[str] = set()
        self._next_save = 0.0

    def draw(self, trial: str) -> Drawn | None:
        """Return what the searcher suggests."""
        drawn = self.searcher.suggest(trial)
        if drawn is None:
            return None
        if isinstance(drawn, str):  # Searcher.FINISHED
            raise Exhausted
        self._known.add(trial)
        self.save()
        return dict(drawn)

    def reported(self, trial: str, result: Mapping[str, Any]) -> None:
        """Let the searcher know of an evaluation."""
        if trial in self._known:
            self.searcher.on_trial_result(trial, dict(result))

    def ended(self, trial: str, drawn: Drawn, result: Mapping[str, Any] | None) -> None:
        """Let the searcher know of an end, once; of a failed trial that is run again, once more."""
        if trial in self._learned and trial not in self._reopened:
            return
        if trial in self._known:
            given = None if result is None else dict(result)
            self.searcher.on_trial_complete(trial, result=given, error=given is None)
        elif result is not None:
            self._teach(drawn, result)
        self._known.discard(trial)
        self._reopened.discard(trial)
        self._learned.add(trial)
        self.save()

    def reopen(self, trial: str) -> None:
        """Know that a trial, of whose failure the searcher knows, is run again."""
        self._reopened.add(trial)

    def save(self) -> None:
        """Write the searcher's state; a full disk or a searcher without one costs only that.

        So does a user's searcher that holds what cannot be pickled.
        """
        begun = time.monotonic()
        if begun < self._next_save:
            return
        with contextlib.suppress(
            OSError, NotImplementedError, AttributeError, TypeError, pickle.PicklingError
        ):
            state = {"known": self._known, "learned": self._learned, "searcher": self._state()}
            replace_file(self._file, pickle.dumps(state))
        spent = time.monotonic() - begun
        if spent > _QUICK_SECONDS:
            self._next_save = time.monotonic() + _SHARE * spent

    def restore(self) -> bool:
        """Take up the state that was saved last; say whether there was one."""
        try:
            state = pickle.loads(self._file.read_bytes())
        except FileNotFoundError:
            return False
        with tempfile.NamedTemporaryFile() as file:
            Path(file.name).write_bytes(state["searcher"])
            self.searcher.restore(file.name)
        self._known, self._learned = state["known"], state["learned"]
        return True

    def recognise(self, trial: str, drawn: Drawn) -> None:
        """Bring the searcher to where it had suggested a trial that its saved state lacks.

        Asked again it suggests the same, unless it knew more by then. In that case it is told
        of the trial as of any other point, when that ends.
        """
        if trial in self._known or trial in self._learned:
            return
        suggested = self.searcher.suggest(trial)
        if suggested == drawn:
            self._known.add(trial)
        elif suggested is not None and not isinstance(suggested, str):
            self.searcher.on_trial_complete(trial, error=True)

    def _teach(self, drawn: Drawn, result: Mapping[str, Any]) -> None:
        """Tell of a trial that the searcher's state does not have; not every one can be told."""
        try:
            if isinstance(self.searcher, ModelSearcher):
                self._teach_model(self.searcher, drawn, result)
            elif isinstance(metric := self.searcher.metric, str) and metric in result:
                self.searcher.add_evaluated_point(drawn, result[metric])
        except NotImplementedError:
            pass
        except Exception as error:  # one point less is no reason to end a sweep
            kind = type(self.searcher).__name__
            _log.warning("%s does not take an earlier trial: %s", kind, error)

    @staticmethod
    def _teach_model(searcher: ModelSearcher, drawn: Drawn, result: Mapping[str, Any]) -> None:
        values = [result.get(name) for name in searcher.objectives]
        known = [float(one) for one in values if isinstance(one, Real) and math.isfinite(one)]
        if searcher.can_learn and len(known) == len(values):
            searcher.learn(drawn, known)

    def _state(self) -> bytes:
        """Return what the searcher itself writes to be restored from."""
        with tempfile.NamedTemporaryFile() as file:
            self.searcher.save(file.name)
            return Path(file.name).read_bytes()
