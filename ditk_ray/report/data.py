"""What a report is made of: a sweep's record, its learning curves, its parameters as axes."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeGuard

from ditk_ray.record.record import (
    RECORD_FILE,
    SweepRecord,
    SweepStatus,
    TrialRecord,
    TrialState,
    read_record,
    seconds_between,
)
from ditk_ray.record.trial_folder import by_attempt, read_metrics
from ditk_ray.trial.reports import standing
from ditk_ray.util.files import Row

MISSING = "–"  # noqa: RUF001  a dash in a table is not a hyphen

_GOLDEN = 0.6180339887
_FEW_DECADES = 2
_MOST = 6
_SMALL, _LARGE = 1e-3, 1e6  # numbers between them are read at a glance


def is_number(value: Any) -> TypeGuard[float]:
    """Say whether a value has a place on an axis of numbers."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def show(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.0f}" if 1e4 <= abs(value) < 1e15 else f"{value:.4g}"


def show_count(number: float) -> str:
    return f"{number:,.0f}"


def count(number: int, thing: str) -> str:
    return f"{show_count(number)} {thing}{'' if number == 1 else 's'}"


def key(value: Any) -> str:
    """Return a text that is the same for the same value: `1`, `"1"` and `true` differ."""
    return json.dumps(value, sort_keys=True, default=str)


def for_plotly(text: str) -> str:
    """Keep Plotly from reading a text as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def script_json(value: Any) -> str:
    """Return JSON that cannot end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


@dataclass(frozen=True)
class Axis:
    """A parameter that varies.

    An axis of numbers has bounds and no `categories`. Any other has a category for each
    value, by its `key`, with the text that shows it.
    """

    name: str
    label: str
    lower: float = 0.0
    upper: float = 1.0
    is_log: bool = False
    categories: Mapping[str, str] | None = None

    def place(self, value: Any) -> float | None:
        """Return where a value is: a number itself, a category by its rank from 0."""
        if self.categories is not None:
            keys = list(self.categories)
            return keys.index(key(value)) if key(value) in keys else None
        return float(value) if is_number(value) else None

    def fraction(self, place: float, spread: float = 0.0) -> float:
        """Return a place as a fraction of the axis; a `spread` of ±0.5 keeps to its category."""
        if self.categories is not None:
            return (place + 0.5 + 0.5 * spread) / len(self.categories)
        if self.is_log:
            return math.log(place / self.lower) / math.log(self.upper / self.lower)
        return (place - self.lower) / (self.upper - self.lower)


def build_axes(
    trials: Iterable[Mapping[str, Any]], space: Mapping[str, Mapping[str, Any]]
) -> list[Axis]:
    """Return an axis for each parameter that has more than one value in these trials.

    `space` describes the parameters, as a record's job has it; it may be empty.
    """
    values: dict[str, list[Any]] = {}
    for params in trials:
        for name, value in params.items():
            values.setdefault(name, []).append(value)
    labels = short_names(values)
    return [
        _axis(name, labels[name], drawn, space.get(name, {}))
        for name, drawn in values.items()
        if len({key(value) for value in drawn}) > 1
    ]


def short_names(names: Iterable[str]) -> dict[str, str]:
    """Return for each dotted name the shortest end that no other name has."""
    names = list(names)
    ends = {name: list(accumulate(reversed(name.split(".")), "{1}.{0}".format)) for name in names}
    times = Counter(end for own in ends.values() for end in own)
    return {name: next((end for end in ends[name] if times[end] == 1), name) for name in names}


def spread(index: int) -> float:
    """Return a number between -0.5 and 0.5 that is far from those of the neighbours."""
    return (index * _GOLDEN) % 1 - 0.5


def _axis(name: str, label: str, drawn: Sequence[Any], description: Mapping[str, Any]) -> Axis:
    is_choice = description.get("kind") in ("choice", "grid")
    if is_choice or not all(is_number(value) for value in drawn):
        return Axis(name, label, categories=_categories(drawn, description.get("choices") or ()))
    lower, upper = description.get("lower"), description.get("upper")
    known = [float(value) for value in drawn]
    if is_number(lower) and is_number(upper):  # Tune's integers end before the bound
        known += [float(lower), float(upper) - (description.get("kind") == "int")]
    is_log = bool(description.get("log")) and min(known) > 0
    return Axis(name, label, min(known), max(known), is_log)


def _categories(drawn: Sequence[Any], choices: Sequence[Any]) -> dict[str, str]:
    values = {key(value): value for value in (*choices, *drawn)}
    used = {key(value) for value in drawn}
    kept = {name: value for name, value in values.items() if name in used}
    if all(is_number(value) for value in kept.values()):
        kept = dict(sorted(kept.items(), key=lambda item: item[1]))
    elif not choices:
        kept = dict(sorted(kept.items(), key=lambda item: show(item[1])))
    times = Counter(show(value) for value in kept.values())
    return {
        name: show(value) if times[show(value)] == 1 else repr(value)
        for name, value in kept.items()
    }


def log_ticks(lower: float, upper: float) -> dict[float, str]:
    """Return round numbers between two positive bounds, with their texts."""
    low, high = math.floor(math.log10(lower)), math.ceil(math.log10(upper))
    if math.log10(upper / lower) < _FEW_DECADES:
        numbers = [digit * 10.0**power for power in range(low, high + 1) for digit in (1, 2, 5)]
    else:
        every = -(-(high - low + 1) // _MOST)
        numbers = [10.0**power for power in range(low, high + 1, every)]
    margin = 1.001  # of rounding
    inside = [number for number in numbers if lower / margin <= number <= upper * margin]
    is_plain = all(_SMALL <= number < _LARGE for number in inside)
    return {n: show(float(f"{n:.6g}")) if is_plain else _power(n) for n in inside}


def _power(number: float) -> str:
    mantissa, _, power = f"{number:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}"


_SEED = re.compile(r"eval_value_seed_(\d+)")

Numbers = list[float | None]


@dataclass(frozen=True)
class TrialData:
    """A trial with what its own files say; `index` is its place in the record."""

    index: int
    record: TrialRecord
    score: float | None
    curve: Curve
    seconds: float
    objectives: tuple[float, ...] = ()
    """The values of all objectives at its best evaluation; none if one is missing."""
    is_pareto: bool = False
    """Whether no other trial beats it in all of several objectives."""

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def best_step(self) -> float | None:
        return _number(self.record.best_metrics, "env_step")

    @property
    def last_step(self) -> float | None:
        return _number(self.record.metrics, "env_step")


@dataclass(frozen=True)
class SweepData:
    """A sweep as it was at the moment `seen`."""

    record: SweepRecord
    folder: Path
    seen: datetime
    trials: Sequence[TrialData]
    axes: Sequence[Axis]

    @property
    def is_running(self) -> bool:
        return self.record.status is SweepStatus.RUNNING

    @property
    def seconds(self) -> float | None:
        return seconds_between(self.record.started, self.record.ended or self.seen.isoformat())

    @property
    def seeds(self) -> int:
        return len(self.record.job.get("seeds") or [0])

    @property
    def steps(self) -> float:
        """The environment steps of all trials and seeds together."""
        return self.seeds * sum(trial.last_step or 0 for trial in self.trials)

    @property
    def best(self) -> TrialData | None:
        best = self.record.best()
        return next((trial for trial in self.trials if trial.record is best), None)

    @property
    def pareto(self) -> list[TrialData]:
        """The trials that none beats in all objectives, if there are several; the best first."""
        return [trial for trial in self.ranked if trial.is_pareto]

    @property
    def scored(self) -> list[TrialData]:
        """The trials with a score, in the record's order."""
        return [trial for trial in self.trials if trial.score is not None]

    @property
    def finished(self) -> list[TrialData]:
        """The trials that ended with a score, also those that were ended early."""
        return [
            trial
            for trial in self.scored
            if trial.record.state.is_final and trial.record.state is not TrialState.FAILED
        ]

    @property
    def ranked(self) -> list[TrialData]:
        """The trials with a score, the best first."""
        return [trial for trial in self.ordered if trial.score is not None]

    @property
    def ordered(self) -> list[TrialData]:
        """All trials, the best first and those without a score last."""
        return sorted(self.trials, key=lambda trial: self.record.rank(trial.record.best_metrics))


def gather(folder: Path) -> SweepData:
    """Read a sweep's folder. Raises `BadConfigError` if it holds no sweep."""
    record = read_record(folder)
    seen = datetime.fromtimestamp((folder / RECORD_FILE).stat().st_mtime, UTC)
    until = record.ended or seen.isoformat()
    pareto = {trial.id for trial in record.pareto_set()}
    trials = [
        _trial(record, index, trial, until, trial.id in pareto)
        for index, trial in enumerate(record.trials.values())
    ]
    axes = build_axes((trial.record.params for trial in trials), record.job.get("space") or {})
    return SweepData(record, folder, seen, trials, axes)


def _trial(
    record: SweepRecord, index: int, trial: TrialRecord, until: str, is_pareto: bool
) -> TrialData:
    curve = read_curve(Path(trial.dir), record.metric)
    seconds = _held_seconds(trial, curve, until)
    values = [_number(trial.best_metrics, item.metric) for item in record.objectives]
    known = tuple(value for value in values if value is not None)
    objectives = known if len(known) == len(values) else ()
    return TrialData(index, trial, record.score(trial), curve, seconds, objectives, is_pareto)


def _held_seconds(trial: TrialRecord, curve: Curve, until: str) -> float:
    """Return how long a trial held its resources.

    That of several attempts is what they trained: it may have waited between them.
    """
    if curve.attempts > 1 or trial.state in (TrialState.PENDING, TrialState.PAUSED):
        return curve.seconds
    span = seconds_between(trial.started, trial.ended or until)
    return max(span or 0.0, curve.seconds)


@dataclass(frozen=True)
class Curve:
    """A trial's evaluations in the order they were made.

    `steps` are environment steps and `scores` those of the metric; a None is a gap, where
    there was no score or another attempt begins. `seeds` has a seed's own scores along the
    same steps. `seconds` are those that all attempts together trained.
    """

    steps: Numbers = field(default_factory=list)
    scores: Numbers = field(default_factory=list)
    seeds: dict[str, Numbers] = field(default_factory=dict)
    seconds: float = 0.0
    attempts: int = 0

    @property
    def evaluations(self) -> int:
        return sum(score is not None for score in self.scores)


def read_curve(folder: Path, metric: str) -> Curve:
    """Read the evaluations of the trial in this folder; one that has none has an empty curve."""
    attempts = by_attempt(read_metrics(folder))
    rows = [row for attempt in attempts for row in ({}, *attempt)][1:]
    names = sorted({name for row in rows for name in row})
    seeds = {match[1]: name for name in names if (match := _SEED.fullmatch(name))}
    return Curve(
        _column(rows, "env_step"),
        _column(rows, metric),
        {seed: _column(rows, name) for seed, name in seeds.items()},
        _seconds(attempts),
        len(attempts),
    )


def _seconds(attempts: Sequence[Sequence[Row]]) -> float:
    """Return how long all attempts trained.

    One that resumes from a checkpoint continues the clock of the attempt that wrote it; one
    that starts over has a new clock.
    """
    seconds = 0.0
    progress: list[Row] = []
    for attempt in attempts:
        kept = standing([*progress, attempt[0]])[:-1]
        reached = max((_time(row) for row in kept), default=0.0)
        begun = reached if _time(attempt[0]) >= reached else 0.0
        seconds += max(_time(row) for row in attempt) - begun
        progress = [*kept, *attempt]
    return seconds


def _time(row: Row) -> float:
    return _number(row, "time") or 0.0


def thinned(scores: Sequence[float | None], limit: int) -> list[int]:
    """Return the places of about `limit` scores that draw the same line.

    Of each stretch the ends, the lowest, the highest and the gaps are kept.
    """
    if len(scores) <= limit:
        return list(range(len(scores)))
    length = -(-4 * len(scores) // limit)
    kept = {0, len(scores) - 1}
    for start in range(0, len(scores), length):
        places = range(start, min(start + length, len(scores)))
        known = [(score, place) for place in places if (score := scores[place]) is not None]
        kept |= {place for place in places if scores[place] is None}
        if known:
            kept |= {known[0][1], known[-1][1], min(known)[1], max(known)[1]}
    return sorted(kept)


def _column(rows: Sequence[Row], name: str) -> Numbers:
    return [_number(row, name) for row in rows]


def _number(row: Row, name: str) -> float | None:
    return value if is_number(value := row.get(name)) else None
