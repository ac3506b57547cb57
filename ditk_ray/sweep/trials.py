"""Making trials: what they are given, and how Ray Tune gets them.

A sampler draws their values from the space or asks a searcher. Tune's own generators name
trials at random, forget what they had when their process is killed, and cannot make more than
was asked for at first; `TrialGenerator` numbers trials, writes each into the ledger before it
is started, and continues where an earlier process ended.

`sweep.json` is written about once a second; the ledger has every trial before it starts
and the moment it has ended, so that a sweep whose process was killed resumes with exactly
the trials that it had. One JSON object to a line:

  made      a trial is about to be started: `trial`, `params`, and `drawn`, all that was drawn
            for it, pickled, since a choice may be between things that JSON does not know
  ended     a trial has ended: `record`, as in `sweep.json`
  reopened  a trial that had ended is run again: `trial`
"""

from __future__ import annotations

import base64
import contextlib
import copy
import itertools
import logging
import pickle
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cloudpickle
from ray.tune.experiment import Experiment, Trial
from ray.tune.experiment.config_parser import _create_trial_from_spec, _make_parser
from ray.tune.search import SearchAlgorithm, Searcher
from ray.tune.search.sample import _BackwardsCompatibleNumpyRng
from ray.tune.search.variant_generator import generate_variants

from ditk_ray.config.space import SearchSpace
from ditk_ray.record.journal import EventWriter
from ditk_ray.record.record import TrialRecord, finite
from ditk_ray.record.sweep_folder import STATE_FOLDER, TRIAL_PREFIX
from ditk_ray.search.searchers import ModelSearcher
from ditk_ray.trial.reports import ENDED
from ditk_ray.util.files import read_rows, replace_file

_log = logging.getLogger(__name__)

LEDGER_FILE = "trials.jsonl"
SEARCHER_FILE = "searcher.pkl"

_QUICK_SECONDS = 0.1
_SHARE = 20
"""Saving a slow searcher may take this fraction of the event loop's time (one part in N)."""

Drawn = dict[str, Any]

_NO_SCORE = ("failed", "nan", "cancelled")
"""How trials end that a searcher cannot learn a score from."""


@dataclass
class LedgerEntries:
    """What a ledger says: all trials in the order they were made, and those that have ended.

    `reopened` are those that had, and are run again.
    """

    drawn: dict[str, dict[str, Any]] = field(default_factory=dict)
    ended: dict[str, dict[str, Any]] = field(default_factory=dict)
    reopened: set[str] = field(default_factory=set)

    def reopen(self, trial: str) -> None:
        self.ended.pop(trial, None)
        self.reopened.add(trial)


class Ledger(EventWriter):
    """The ledger of a sweep that runs; appended to by its own process only."""

    def __init__(self, folder: Path) -> None:
        super().__init__(ledger_path(folder))

    def made(self, trial: str, drawn: Mapping[str, Any], params: Mapping[str, Any]) -> None:
        pickled = base64.b64encode(cloudpickle.dumps(dict(drawn))).decode()
        self.append("made", trial=trial, params=dict(params), drawn=pickled)

    def ended(self, record: TrialRecord) -> None:
        self.append("ended", record=vars(record))

    def reopened(self, trial: str) -> None:
        self.append("reopened", trial=trial)

    def append(self, kind: str, **values: Any) -> None:
        # A trial that is not in here is made again, by the same name: it must not find
        # the folder of one that the ledger lost with the power.
        super().append(kind, **values)
        self.sync()


def ledger_path(folder: Path) -> Path:
    return folder / STATE_FOLDER / LEDGER_FILE


def read_ledger(folder: Path) -> LedgerEntries:
    """Read a sweep's ledger; an empty one if there is none."""
    entries = LedgerEntries()
    for event in read_rows(ledger_path(folder)):
        if event["kind"] == "made":
            entries.drawn[event["trial"]] = cloudpickle.loads(base64.b64decode(event["drawn"]))
        elif event["kind"] == "ended":
            entries.ended[event["record"]["id"]] = event["record"]
            entries.reopened.discard(event["record"]["id"])
        elif event["kind"] == "reopened":
            entries.reopen(event["trial"])
    return entries


class Exhausted(Exception):  # noqa: N818 - as StopIteration
    """There is nothing more to draw."""


class SpaceSampler:
    """Draws at random from the space, and goes through its grids.

    The same seed draws the same trials in the same order, so a resumed sweep skips as many
    as it has.
    """

    def __init__(
        self,
        space: Mapping[str, Any],
        seed: int,
        points: Sequence[Mapping[str, Any]] = (),
        passed: int = 0,
    ) -> None:
        self._variants = itertools.islice(_variants(space, seed, points), passed, None)

    def draw(self, trial: str) -> Drawn:
        return next(self._variants)

    def reported(self, trial: str, result: Mapping[str, Any]) -> None:
        pass

    def ended(self, trial: str, drawn: Drawn, result: Mapping[str, Any] | None) -> None:
        pass


def _variants(
    space: Mapping[str, Any], seed: int, points: Sequence[Mapping[str, Any]]
) -> Iterator[Drawn]:
    state = _BackwardsCompatibleNumpyRng(seed)
    for point in itertools.chain(points, itertools.repeat({})):
        spec = {"config": {**space, **point}}
        for _, resolved in generate_variants(spec, random_state=state):
            yield resolved["config"]


class SearcherSampler:
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
        """Return the values for a new trial, None if it has to wait; raises `Exhausted`."""
        drawn = self.searcher.suggest(trial)
        if drawn is None:
            return None
        if isinstance(drawn, str):  # Searcher.FINISHED
            raise Exhausted
        self._known.add(trial)
        self.save()
        return dict(drawn)

    def reported(self, trial: str, result: Mapping[str, Any]) -> None:
        if trial in self._known:
            self.searcher.on_trial_result(trial, dict(result))

    def ended(self, trial: str, drawn: Drawn, result: Mapping[str, Any] | None) -> None:
        """Let the searcher know of an end, once; of a failed trial that is run again, once more.

        Without a result it failed or was pruned.
        """
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
        """Note that a trial, of whose failure the searcher knows, is run again."""
        self._reopened.add(trial)

    def save(self) -> None:
        """Write the searcher's state; a full disk or a searcher that has none costs only that."""
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
                values = [finite(result.get(name)) for name in self.searcher.objectives]
                known = [value for value in values if value is not None]
                if self.searcher.can_learn and len(known) == len(values):
                    self.searcher.learn(drawn, known)
            elif isinstance(metric := self.searcher.metric, str) and metric in result:
                self.searcher.add_evaluated_point(drawn, result[metric])
        except NotImplementedError:
            pass
        except Exception as error:  # a missing point must not end a sweep
            kind = type(self.searcher).__name__
            _log.warning("%s does not take an earlier trial: %s", kind, error)

    def _state(self) -> bytes:
        with tempfile.NamedTemporaryFile() as file:
            self.searcher.save(file.name)
            return Path(file.name).read_bytes()


TrialSampler = SpaceSampler | SearcherSampler


class NotPickled:
    """What belongs to this process: Tune pickles a copy that nobody restores."""

    def __getstate__(self) -> dict[str, Any]:
        return {}


@dataclass(eq=False)
class TrialGenerator(NotPickled, SearchAlgorithm):
    """Makes trials, at most `at_once` at a time, until there are as many as were asked for.

    `made` were made before, of which those `unfinished`, with what was drawn for each, come first.
    """

    sampler: TrialSampler
    ledger: Ledger
    space: SearchSpace
    total: int
    concurrency: int
    made: int
    unfinished: dict[str, Drawn]
    must_wait: Callable[[], bool] = lambda: False
    """Set by who schedules: whether a trial that was displaced has the next free place."""
    _live: dict[str, Trial] = field(default_factory=dict)
    _spec: dict[str, Any] = field(default_factory=dict)
    _parser: Any = field(default_factory=_make_parser)

    @property
    def searcher(self) -> Any:
        """The searcher that draws, for schedulers that work together with theirs."""
        return getattr(self.sampler, "searcher", None)

    @property
    def total_samples(self) -> int:
        return self.total

    @property
    def has_more(self) -> bool:
        return not self.is_finished()

    @property
    def is_full(self) -> bool:
        """Whether as many trials as may take up, or wait for, a place; paused ones do not."""
        taking = (Trial.PENDING, Trial.RUNNING)
        return sum(trial.status in taking for trial in self._live.values()) >= self.concurrency

    def set_search_properties(self, *_: Any, **__: Any) -> bool:
        return True

    def add_configurations(self, experiments: Sequence[Experiment]) -> None:
        (experiment,) = experiments
        self._spec = experiment.spec

    def next_trial(self) -> Trial | None:
        """Return the next trial to start, None while there is no place for it."""
        if self.is_finished() or self.is_full or self.must_wait():
            return None
        if self.unfinished:
            name = next(iter(self.unfinished))
            return self._trial(name, self.unfinished.pop(name))
        return self._new_trial()

    def is_finished(self) -> bool:
        return self._finished or (self.made >= self.total and not self.unfinished)

    def on_trial_result(self, trial_id: str, result: Mapping[str, Any]) -> None:
        self.sampler.reported(trial_id, result)

    def on_trial_complete(
        self, trial_id: str, result: Mapping[str, Any] | None = None, error: bool = False
    ) -> None:
        """Pass on an end; one without a score is reported as a failure."""
        trial = self._live.pop(trial_id, None)
        if trial is None:
            return
        if result is None and trial.has_reported_at_least_once:
            result = trial.last_result  # Tune does not pass on that of a paused one
        is_scored = not error and result is not None and has_score(result)
        self.sampler.ended(trial_id, trial.config, result if is_scored else None)

    def _new_trial(self) -> Trial | None:
        name = f"{TRIAL_PREFIX}{self.made:05d}"
        try:
            drawn = self.sampler.draw(trial_id(name))
        except Exhausted:
            self.set_finished()
            return None
        if drawn is None:
            return None
        self.made += 1
        self.ledger.made(name, drawn, self.space.active(drawn))
        return self._trial(name, drawn)

    def _trial(self, name: str, drawn: Drawn) -> Trial:
        spec = {**self._spec, "config": copy.deepcopy(drawn)}
        trial = _create_trial_from_spec(
            spec,
            self._parser,
            evaluated_params=drawn,
            experiment_tag=name,
            trial_id=trial_id(name),
        )
        self._live[trial.trial_id] = trial
        return trial


def has_score(result: Mapping[str, Any]) -> bool:
    """Say whether a trial's last result is one to compare others with."""
    return result.get(ENDED) not in _NO_SCORE


def trial_name(trial: Trial) -> str:
    return f"{TRIAL_PREFIX}{trial.trial_id}"


def trial_id(name: str) -> str:
    """Return the id that Tune and the searcher know a trial by."""
    return name.removeprefix(TRIAL_PREFIX)
