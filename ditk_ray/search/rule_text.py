"""Reading rules as a person writes them: `plateau(eval_value, 5) and env_step>=1e4`.

rules   = all (("or" | ",") all)*
all     = rule ("and" rule)*
rule    = "(" rules ")" | measure (">=" | "<=" | ">" | "<") number
        | "plateau" "(" metric "," count ["," number ["%"]] ")" | "nan" ["(" metric ")"]
measure = ["sweep."] (metric | "mean" "(" metric "," count ")")
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NoReturn

from ditk_ray.config.nearest import did_you_mean
from ditk_ray.config.quantities import parse_seconds
from ditk_ray.errors import BadConfigError, Problem
from ditk_ray.search.measures import Mean, Measure
from ditk_ray.search.rules import AllOf, AnyOf, Nan, Plateau, Rule, Threshold
from ditk_ray.search.sweep_rules import AnyTrial, SweepSum, SweepTime, SweepTrials

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
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_TOKEN = re.compile(
    r"""\s*(?:
        (?P<number>[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?(?:%|[a-zA-Z]*))(?![\w./])
      | (?P<name>[\w./-]+)
      | (?P<comparison>[<>=!]+)
      | (?P<mark>[(),])
      | (?P<other>\S)
    )""",
    re.VERBOSE,
)
_NUMBER = re.compile(r"(?P<value>.*?\d\.?)(?P<unit>%|[a-df-zA-DF-Z]*)")


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def parse_rule(text: str, modes: Mapping[str, str], seeds: int = 1) -> Rule:
    """Return the rule that a text describes, about trials of so many seeds each.

    `modes` says of each metric that is optimised, the first one first, whether it is to
    grow (`max`) or to fall (`min`); any other is taken to go with the first. Raises
    `BadConfigError`, with the place of the mistake.
    """
    return _Parser(text, modes, seeds).parse()


class _Parser:
    def __init__(self, text: str, modes: Mapping[str, str], seeds: int) -> None:
        self._text = text
        self._modes = modes
        self._seeds = seeds
        self._tokens = [*_tokens(text), _Token("end", "", len(text.rstrip()))]
        self._place = 0

    def parse(self) -> Rule:
        rule = self._rules()
        if self._next.kind != "end":
            self._fail("`and`, `or` or the end was expected")
        return rule

    @property
    def _next(self) -> _Token:
        return self._tokens[self._place]

    def _take(self) -> _Token:
        token = self._next
        self._place += token.kind != "end"
        return token

    def _skip(self, *words: str) -> bool:
        """Pass over the next token if it is one of these."""
        is_one = self._next.kind in ("name", "mark") and self._next.text.lower() in words
        self._place += is_one
        return is_one

    def _expect(self, mark: str) -> None:
        if not self._skip(mark):
            self._fail(f"{mark!r} was expected")

    def _rules(self) -> Rule:
        found = [self._all()]
        while self._skip("or", ","):
            found.append(self._all())
        return found[0] if len(found) == 1 else AnyOf(found)

    def _all(self) -> Rule:
        found = [self._rule()]
        while self._skip("and"):
            found.append(self._rule())
        return found[0] if len(found) == 1 else AllOf(found)

    def _rule(self) -> Rule:
        if self._skip("("):
            rule = self._rules()
            self._expect(")")
            return rule
        name = self._name("a rule")
        if self._next.text == "(":
            return self._call(name)
        if name.text == "nan" and self._next.kind != "comparison":
            return Nan("nan", list(self._modes))
        if name.text.startswith(_SWEEP):
            return self._sweep_rule(name)
        return self._threshold(name, name.start, Measure(name.text))

    def _call(self, name: _Token) -> Rule:
        function = name.text.removeprefix(_SWEEP)
        allowed = ("mean",) if function != name.text else FUNCTIONS
        if function not in allowed:
            self._fail("there is no such function", name, did_you_mean(function, allowed))
        self._expect("(")
        metric = self._name("the name of a metric").text
        if function == "mean":
            return self._mean(name, metric)
        return self._plateau(name, metric) if function == "plateau" else self._nan(name, metric)

    def _mean(self, name: _Token, metric: str) -> Rule:
        self._expect(",")
        measure = Mean(metric, self._count())
        self._expect(")")
        if not name.text.startswith(_SWEEP):
            return self._threshold(name, name.start, measure)
        return AnyTrial(self._threshold(name, name.start + len(_SWEEP), measure))

    def _plateau(self, name: _Token, metric: str) -> Rule:
        self._expect(",")
        count = self._count()
        least, is_share = self._least() if self._skip(",") else (0.0, False)
        self._expect(")")
        mode = self._modes.get(metric, next(iter(self._modes.values())))
        return Plateau(self._since(name.start), metric, mode, count, least, is_share)

    def _nan(self, name: _Token, metric: str) -> Rule:
        self._expect(")")
        return Nan(self._since(name.start), [metric])

    def _sweep_rule(self, name: _Token) -> Rule:
        metric = name.text.removeprefix(_SWEEP)
        if metric not in ("time", "trials", *_SUMMED):
            return AnyTrial(self._threshold(name, name.start + len(_SWEEP), Measure(metric)))
        compare = self._comparison(name)
        bound = self._bound(name)
        text = self._since(name.start)
        if metric in _SUMMED:
            return SweepSum(text, metric, compare, bound, self._seeds)
        return (SweepTime if metric == "time" else SweepTrials)(text, compare, bound)

    def _threshold(self, name: _Token, start: int, measure: Measure) -> Threshold:
        compare = self._comparison(name)
        bound = self._bound(name)
        return Threshold(self._since(start), measure, compare, bound)

    def _comparison(self, name: _Token) -> Callable[[float, float], bool]:
        token = self._take()
        if token.text not in _COMPARISONS:
            known = (*KNOWN_METRICS, *self._modes, *FUNCTIONS)
            close = "" if name.text in known else did_you_mean(name.text, known)
            self._fail(f">=, <=, > or < was expected after {name.text!r}", token, close)
        return _COMPARISONS[token.text]

    def _bound(self, name: _Token) -> float:
        token = self._take()
        value, unit = self._number(token)
        if not unit:
            return value
        if "time" not in name.text or unit == "%":
            self._fail(f"{name.text!r} is compared with a plain number", token)
        try:
            return parse_seconds(token.text)
        except ValueError as error:
            self._fail(str(error), token)

    def _count(self) -> int:
        token = self._take()
        value, unit = self._number(token)
        if unit or value < 1 or not value.is_integer():
            self._fail("a number of evaluations was expected", token)
        return int(value)

    def _least(self) -> tuple[float, bool]:
        token = self._take()
        value, unit = self._number(token)
        if unit not in ("", "%") or value < 0:
            self._fail("an improvement was expected, such as 0.5 or 1%", token)
        return (value / 100, True) if unit else (value, False)

    def _number(self, token: _Token) -> tuple[float, str]:
        found = _NUMBER.fullmatch(token.text) if token.kind == "number" else None
        if found is None:
            self._fail("a number was expected", token)
        return float(found["value"]), found["unit"]

    def _name(self, wanted: str) -> _Token:
        token = self._take()
        if token.kind != "name" or token.text.lower() in ("and", "or"):
            self._fail(f"{wanted} was expected", token)
        return token

    def _since(self, start: int) -> str:
        """Return the text from there to the last token that was read."""
        return self._text[start : self._tokens[self._place - 1].end]

    def _fail(self, what: str, token: _Token | None = None, close: str = "") -> NoReturn:
        token = token or self._next
        at = "the end" if token.kind == "end" else f"{token.text!r} (character {token.start + 1})"
        hint = "\n    ".join(filter(None, (close, HINT)))
        raise BadConfigError(Problem("stopper", f"{self._text!r}, at {at}: {what}", hint))


def _tokens(text: str) -> Iterable[_Token]:
    for found in _TOKEN.finditer(text):
        kind = str(found.lastgroup)
        yield _Token(kind, found[kind], found.start(kind))
