"""Ray Tune's number domains as ranges: bounds, scale and step."""

from __future__ import annotations

import math
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any

from ray.tune.search.sample import Float, Integer, LogUniform, Quantized, Uniform

Number = int | float


@dataclass(frozen=True)
class Range:
    """All numbers from `lower` to `upper`, both included; with a `step`, its multiples."""

    lower: Number
    upper: Number
    is_int: bool
    is_log: bool
    step: Number | None = None

    def rounded(self, value: Number) -> Number:
        """Return the member that is nearest to `value`, as an int or float of Python's own."""
        if self.step is not None:
            value = round(value / self.step) * self.step
        value = min(max(value, self.lower), self.upper)
        return round(value) if self.is_int else float(value)

    def refusal(self, value: Any) -> str | None:
        """Say why `value` is no member, or return None."""
        if isinstance(value, bool) or not isinstance(value, Real) or not math.isfinite(value):
            return f"{value!r} is no number"
        if self.is_int and not isinstance(value, Integral):
            return f"{value!r} is no whole number"
        number = float(value)
        if not self.lower <= number <= self.upper:
            return f"{value!r} lies outside {self.lower:g} to {self.upper:g}"
        if self.step and not math.isclose(self.rounded(number), number, rel_tol=1e-6):
            return f"{value!r} is no multiple of {self.step:g}"
        return None

    def spread(self, count: int) -> list[Number]:
        """Return up to `count` members that are spread evenly, each only once."""
        low, high = (math.log(v) if self.is_log else v for v in (self.lower, self.upper))
        shares = [index / (count - 1) for index in range(count)] if count > 1 else [0.5]
        places = [low + share * (high - low) for share in shares]
        values = [self.rounded(math.exp(place) if self.is_log else place) for place in places]
        return list(dict.fromkeys(values))

    def domain(self) -> Any:
        """Return Tune's domain of it without the step, which not every searcher knows."""
        if self.is_int:
            whole = Integer(int(self.lower), int(self.upper) + 1)
            return whole.loguniform() if self.is_log else whole.uniform()
        floats = Float(float(self.lower), float(self.upper))
        return floats.loguniform() if self.is_log else floats.uniform()


def read_range(domain: Any) -> Range | None:
    """Return the range that a domain draws from; None if it is none, or has no bounds."""
    if not isinstance(domain, (Float, Integer)):
        return None
    sampler, step = domain.get_sampler(), None
    if isinstance(sampler, Quantized):
        step, sampler = sampler.q, sampler.get_sampler()
    is_log = isinstance(sampler, LogUniform)
    if not (is_log or isinstance(sampler, Uniform)):
        return None
    if not (math.isfinite(domain.lower) and math.isfinite(domain.upper)):
        return None
    if isinstance(domain, Integer):
        # Tune leaves the upper bound out, unless there is a step.
        step = None if step == 1 else step
        upper = domain.upper if step else domain.upper - 1
        return _within(Range(domain.lower, upper, True, is_log, step))
    return _within(Range(domain.lower, domain.upper, False, is_log, step))


def _within(given: Range) -> Range:
    """Move the bounds of a range with a step to the outermost multiples inside them."""
    if given.step is None:
        return given
    step = given.step
    lower = math.ceil(given.lower / step - 1e-9) * step
    upper = math.floor(given.upper / step + 1e-9) * step
    return Range(lower, upper, given.is_int, given.is_log, step)
