"""Rules that end trials or a sweep, as a person writes them, and what they are decided by.

rules   = all (("or" | ",") all)*
all     = rule ("and" rule)*
rule    = "(" rules ")" | measure (">=" | "<=" | ">" | "<") number
        | "plateau" "(" metric "," count ["," number ["%"]] ")" | "nan" ["(" metric ")"]
measure = ["sweep."] (metric | "mean" "(" metric "," count ")")
"""

from __future__ import annotations

import math
import operator
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from numbers import Real
from statistics import fmean
from typing import Any, Literal, NamedTuple, NoReturn

from ray.tune.result import TRAINING_ITERATION

from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.trial.reports import ENDED
from ditk_ray.util.suggest import did_you_mean
from ditk_ray.util.units import SECONDS_OF

Result = Mapping[str, Any]
Test = Callable[["History", str | None], bool]
"""Of what was reported, and a trial, or None for the sweep: whether a rule holds."""
Compare = Callable[[float, float], bool]

HINT = (
    "give a rule such as 'eval_value>=195' (several with `and`, `or` and brackets between), "
    "a dict, a function of (trial_id, result), or a Ray Tune Stopper"
)
FUNCTIONS = ("mean", "plateau", "nan")
KNOWN_METRICS = (
    *("eval_value", "eval_value_std", "eval_value_min", "eval_value_max"),
    *("env_step", "train_iter", "time", "training_iteration"),
)
_SWEEP = "sweep."
_SUMMED = ("env_step", "train_iter")
_TOTALS = ("sweep.time", "sweep.trials", "sweep.env_step", "sweep.train_iter")
_REPEATING = ("training", "time", "cancelled")
"""Why a trial ended whose last report repeats its last evaluation."""
_COMPARISONS: Mapping[str, Compare] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_TOKEN = re.compile(
    r"""(?P<number>(?P<value>[-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)(?P<unit>%|[a-z]*))(?![\w./])
      | (?P<word>(?:and|or)(?![\w./-]))
      | (?P<name>[\w./-]+)
      | (?P<comparison>[<>]=?(?![<>=!]))
      | (?P<other>[<>=!]+|\S)""",
    re.VERBOSE | re.IGNORECASE,
)


class Report(NamedTuple):
    """The metrics of an evaluation, and the least and the most that each has been up to it."""

    numbers: dict[str, float]
    ranges: dict[str, tuple[float, float]]


@dataclass
class History:
    """What the trials of a sweep have reported of `metrics`, each along its line of progress.

    A line has the report of each evaluation by its number, in order. Of trials that have ended
    only what they add to the sweep's sums is kept. Trials report the mean of their `seeds`, each
    of which has made its own steps.
    """

    metrics: frozenset[str]
    seeds: int = 1
    lines: dict[str, dict[int, Report]] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    sums: dict[str, float] = field(default_factory=dict)
    begun: float | None = None
    """As `time.time()` counts: Tune saves its stopper."""

    def begin(self, seconds: float) -> None:
        self.begun = time.time() - seconds

    def add(self, trial: str, result: Result) -> None:
        """Take a report; a number that comes again replaces what was reported from there on."""
        line = self.lines.setdefault(trial, {})
        number = result.get(TRAINING_ITERATION) or next(reversed(line), 0) + 1
        number -= result.get(ENDED) in _REPEATING
        found = {name: result.get(name) for name in self.metrics}
        numbers = {name: float(value) for name, value in found.items() if isinstance(value, Real)}
        while line and next(reversed(line)) >= number:
            line.popitem()
        ranges = next(reversed(line.values())).ranges.copy() if line else {}
        for name, value in numbers.items():
            low, high = ranges.get(name, (math.inf, -math.inf))
            ranges[name] = min(low, value), max(high, value)  # neither of them takes a nan
        line[number] = Report(numbers, ranges)

    def end(self, trial: str) -> None:
        if trial not in self.ended:
            self.ended.add(trial)
            for name in _SUMMED:
                self.sums[name] = self.sums.get(name, 0.0) + self._reached(trial, name)
        self.lines.pop(trial, None)

    def newest(self, trial: str | None) -> Mapping[str, float]:
        return next((made.numbers for made in self._newest_first(trial)), {})

    def reports(self, trial: str | None, metric: str, count: int) -> list[Report]:
        """Return the last reports with a metric, newest first; none if the newest is without it."""
        if metric not in self.newest(trial):
            return []
        found = (made for made in self._newest_first(trial) if metric in made.numbers)
        return list(islice(found, count))

    def total(self, name: str) -> float:
        """Return a figure of the whole sweep: its time, its ended trials, or a sum over trials."""
        if name == "time":
            self.begun = self.begun or time.time()
            return time.time() - self.begun
        if name == "trials":
            return len(self.ended)
        running = sum(self._reached(trial, name) for trial in self.lines)
        return self.seeds * (self.sums.get(name, 0.0) + running)

    def _reached(self, trial: str, name: str) -> float:
        found = (made.numbers for made in self._newest_first(trial))
        return next((numbers[name] for numbers in found if name in numbers), 0.0)

    def _newest_first(self, trial: str | None) -> Iterator[Report]:
        return reversed(self.lines.get(trial or "", {}).values())


@dataclass(eq=False)
class Rule:
    """A condition; `text` is as a person writes it, `metrics` what it looks for in results.

    One about `any_trial` holds for the sweep from when its test first held for one of them.
    """

    text: str
    metrics: frozenset[str]
    test: Test
    any_trial: bool = False
    has_held: bool = False

    def holds(self, history: History, trial: str | None) -> bool:
        """Say whether it holds for a trial, or for the sweep if none is given."""
        return self.has_held if self.any_trial else self.test(history, trial)

    def reason(self, history: History, trial: str | None) -> str:
        return self.text

    def leaves(self) -> Iterator[Rule]:
        yield self

    def take(self, history: History, trial: str, result: Result, is_replayed: bool) -> None:
        """Look at a trial's newest result, once; most rules only look at the history."""
        self.has_held = self.has_held or (self.any_trial and self.test(history, trial))

    def end_trial(self, trial: str) -> None:
        """Forget a trial that is over."""


class Several(Rule):
    """Rules put together: with `and` and one about a trial among them, never for the sweep."""

    def __init__(self, word: str, rules: Sequence[Rule]) -> None:
        self._word = word
        self._rules = tuple(rules)
        shown = (f"({rule.text})" if isinstance(rule, Several) else rule.text for rule in rules)
        metrics = frozenset(name for rule in rules for name in rule.metrics)
        super().__init__(f" {word} ".join(shown), metrics, self._hold)

    def _hold(self, history: History, trial: str | None) -> bool:
        every = all if self._word == "and" else any
        return every(rule.holds(history, trial) for rule in self._rules)

    def reason(self, history: History, trial: str | None) -> str:
        if self._word == "and":
            return " and ".join(rule.reason(history, trial) for rule in self._rules)
        held = (rule for rule in self._rules if rule.holds(history, trial))
        return next((rule.reason(history, trial) for rule in held), self.text)

    def leaves(self) -> Iterator[Rule]:
        for rule in self._rules:
            yield from rule.leaves()


def combine(word: Literal["and", "or"], rules: Sequence[Rule]) -> Rule:
    return rules[0] if len(rules) == 1 else Several(word, rules)


# The first arguments of these tests are bound when a rule is read.
def _is_beyond(
    metric: str, count: int, compare: Compare, bound: float, history: History, trial: str | None
) -> bool:
    if metric in _TOTALS:
        return compare(history.total(metric.removeprefix(_SWEEP)), bound)
    values = [made.numbers[metric] for made in history.reports(trial, metric, count)]
    return len(values) == count and compare(fmean(values), bound)


def _is_plateau(
    metric: str,
    sign: int,
    count: int,
    least: float,
    is_share: bool,
    history: History,
    trial: str | None,
) -> bool:
    found = history.reports(trial, metric, count + 1)
    if len(found) <= count:
        return False
    new, old = (sign * found[place].ranges[metric][sign > 0] for place in (0, -1))
    if math.isinf(old):
        return not new > old
    return not new - old > (least * abs(old) if is_share else least)


def _is_nan(metrics: frozenset[str], history: History, trial: str | None) -> bool:
    numbers = history.newest(trial)
    return any(math.isnan(numbers.get(name, 0.0)) for name in metrics)


def parse_rule(text: str, modes: Mapping[str, str]) -> Rule:
    """Return the rule that a text describes.

    `modes` says of each metric that is optimised, the first one first, whether it is to
    grow (`max`) or to fall (`min`); any other is taken to go with the first. Raises
    `BadConfigError`, with the place of the mistake.
    """
    return _Parser(text, modes).parse()


class _Parser:
    """A recursive descent, one method for each line of the grammar.

    Not Python's parser: metrics may be named `eval/return-mean.0`, and numbers have units.
    """

    def __init__(self, text: str, modes: Mapping[str, str]) -> None:
        self._text = text
        self._modes = modes
        self._tokens = list(_TOKEN.finditer(text))
        self._next = 0

    def parse(self) -> Rule:
        rule = self._rules()
        if self._next < len(self._tokens):
            self._fail("expected `and`, `or` or the end")
        return rule

    def _rules(self) -> Rule:
        rules = [self._all()]
        while self._skip("or", ","):
            rules.append(self._all())
        return combine("or", rules)

    def _all(self) -> Rule:
        rules = [self._rule()]
        while self._skip("and"):
            rules.append(self._rule())
        return combine("and", rules)

    def _rule(self) -> Rule:
        if self._skip("("):
            rule = self._rules()
            self._expect(")")
            return rule
        start = self._next
        name = self._take("name", "a rule")[0]
        if self._skip("("):
            return self._call(start, name)
        if name != "nan":
            return self._threshold(start, name, name.removeprefix(_SWEEP), 1)
        optimised = frozenset(self._modes)
        return Rule(name, optimised, partial(_is_nan, optimised))

    def _call(self, start: int, name: str) -> Rule:
        function = name.removeprefix(_SWEEP)
        allowed = ("mean",) if function != name else FUNCTIONS
        if function not in allowed:
            self._fail("there is no such function", did_you_mean(function, allowed), at=start)
        metric = self._take("name", "the name of a metric")[0]
        looked_for = frozenset([metric])
        if function == "nan":
            self._expect(")")
            return Rule(self._since(start), looked_for, partial(_is_nan, looked_for))
        self._expect(",")
        count = self._count()
        least, unit = 0.0, ""
        if function == "plateau" and self._skip(","):
            least, unit = self._number("an improvement, such as 0.5 or 1%", "%")
            if least < 0:
                self._fail("expected an improvement, such as 0.5 or 1%", at=self._next - 1)
        self._expect(")")
        if function == "mean":
            return self._threshold(start, name, metric, count)
        sign = 1 if self._modes.get(metric, next(iter(self._modes.values()))) == "max" else -1
        share = (least / 100, True) if unit else (least, False)
        test = partial(_is_plateau, metric, sign, count, *share)
        return Rule(self._since(start), looked_for, test)

    def _threshold(self, start: int, name: str, metric: str, count: int) -> Rule:
        known = (*KNOWN_METRICS, *self._modes, *FUNCTIONS)
        close = "" if name in known else did_you_mean(name, known)
        sign = self._take("comparison", f">=, <=, > or < after {name!r}", close)[0]
        if "time" in name:
            value, unit = self._number("a number, or a time such as 10m", *SECONDS_OF)
        else:
            value, unit = self._number(f"a plain number to compare {name!r} with")
        compare, bound = _COMPARISONS[sign], value * SECONDS_OF[unit]
        text, looked_for = self._since(start), frozenset([metric])
        if name in _TOTALS:
            test = partial(_is_beyond, name, 1, compare, bound)
            return Rule(text, looked_for & frozenset(_SUMMED), test)
        test = partial(_is_beyond, metric, count, compare, bound)
        return Rule(text, looked_for, test, any_trial=name.startswith(_SWEEP))

    def _count(self) -> int:
        value, _ = self._number("a number of evaluations")
        if value < 1 or not value.is_integer():
            self._fail("expected a number of evaluations", at=self._next - 1)
        return int(value)

    def _number(self, expected: str, *units: str) -> tuple[float, str]:
        number = self._take("number", expected)
        unit = number["unit"].lower()
        if unit not in ("", *units):
            self._fail(f"expected {expected}", at=self._next - 1)
        return float(number["value"]), unit

    def _skip(self, *texts: str) -> bool:
        is_next = self._tokens[self._next :][:1]
        if not is_next or is_next[0][0].lower() not in texts:
            return False
        self._next += 1
        return True

    def _expect(self, text: str) -> None:
        if not self._skip(text):
            self._fail(f"expected {text!r}")

    def _take(self, kind: str, expected: str, close: str = "") -> re.Match[str]:
        if self._next == len(self._tokens) or self._tokens[self._next].lastgroup != kind:
            self._fail(f"expected {expected}", close)
        self._next += 1
        return self._tokens[self._next - 1]

    def _since(self, start: int) -> str:
        return self._text[self._tokens[start].start() : self._tokens[self._next - 1].end()]

    def _fail(self, what: str, close: str = "", at: int | None = None) -> NoReturn:
        found = self._tokens[self._next if at is None else at :][:1]
        place = f"{found[0][0]!r} (character {found[0].start() + 1})" if found else "the end"
        hint = "\n    ".join(filter(None, (close, HINT)))
        raise BadConfigError(Problem("stopper", f"{self._text!r}, at {place}: {what}", hint))
