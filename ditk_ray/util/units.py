"""Amounts as people write them: `4G` of memory, `90m` of time."""

from __future__ import annotations

import re
from datetime import timedelta

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", re.IGNORECASE)
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
SECONDS_OF = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}


def parse_bytes(amount: str | int | float) -> int:
    """Turn `"4G"`, `"512MiB"` or a number of bytes into bytes; units are of 1024."""
    match = _SIZE.fullmatch(str(amount).strip())
    if match is None:
        raise ValueError(f"{amount!r} is not a memory size; write it like '4G' or '512M'")
    return int(float(match[1]) * 1024 ** _POWERS[match[2].lower()])


def parse_seconds(amount: str | int | float | timedelta) -> float:
    """Turn `"90m"`, `"2h"`, a number of seconds or a timedelta into seconds."""
    if isinstance(amount, timedelta):
        return amount.total_seconds()
    match = _TIME.fullmatch(str(amount).strip())
    if match is None:
        raise ValueError(f"{amount!r} is not a length of time; write it like 90, '30m' or '2h'")
    return float(match[1]) * SECONDS_OF[match[2].lower()]


def show_bytes(amount: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.4g} {unit}"
        amount /= 1024
    return f"{amount:.4g} GiB"


def show_seconds(amount: float) -> str:
    seconds = round(amount)
    if seconds < 60:
        return f"{amount:.1f}s" if amount < 10 else f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m{seconds % 60:02d}s"
    return f"{seconds // 3600}h{seconds % 3600 // 60:02d}m"
