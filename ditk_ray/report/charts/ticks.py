"""Marks on axes whose numbers span orders of magnitude."""

from __future__ import annotations

import math

from ditk_ray.report.values import show

_FEW_DECADES = 2
_MOST = 6
_SMALL, _LARGE = 1e-3, 1e6  # numbers between them are read at a glance


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
    return {number: _plain(number) if is_plain else _power(number) for number in inside}


def _plain(number: float) -> str:
    return show(float(f"{number:.6g}"))


def _power(number: float) -> str:
    """Write a round number like `1e-5`."""
    mantissa, _, power = f"{number:.3e}".partition("e")
    return f"{float(mantissa):g}e{int(power)}"
