"""Where one stands in a log that is read in pieces: which lines come twice, and from when to ask.

The API takes a time with whole seconds to go on from, so the lines around it come again.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta

# Lines of the two streams of a container may be a little out of order.
_MARGIN_SECONDS = 1

_STAMPED = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d) ?(.*)", re.DOTALL)


class LogPosition:
    """Tells lines that were seen from those that are new. Not for use by several threads.

    If reading `begins_late`, lines from before the first one are not new when they come.
    """

    def __init__(self, begins_late: bool = False) -> None:
        self._begins_late = begins_late
        self._first: tuple[int, str] | None = None
        self._second: int | None = None
        self._stamp = ("", 0)  # the last one that was read, as it comes many times in a row
        self._recent: dict[int, Counter[tuple[str, int]]] = {}
        self._again: Counter[tuple[str, int]] = Counter()

    def since(self) -> str | None:
        """Return the time to ask from, when reading begins again; None is the beginning.

        Lines that were seen since then are expected to come once more.
        """
        self._again = Counter()
        for seen in self._recent.values():
            self._again.update(seen)
        if self._second is None:
            return None
        asked = datetime.fromtimestamp(self._second, UTC) - timedelta(seconds=_MARGIN_SECONDS)
        return asked.strftime("%Y-%m-%dT%H:%M:%SZ")

    def new_text(self, line: str) -> str | None:
        """Return the text of a line, without its time; None if the line was seen before."""
        match = _STAMPED.fullmatch(line)
        if match is None:  # something that the kubelet says, not the container
            return line
        whole, fraction, zone, text = match.groups()
        second = self._second_of(whole + zone)
        stamp = (second, (fraction or ".").ljust(10, "0"))
        self._first = self._first or stamp
        if self._begins_late and stamp < self._first:
            return None
        key = (f"{second}{fraction}", hash(text))
        if self._again[key] > 0:
            self._again[key] -= 1
            return None
        self._note(second, key)
        return text

    def _note(self, second: int, key: tuple[str, int]) -> None:
        """Remember a new line. One that came again does not move the position back."""
        if second != self._second:
            self._second = second
            oldest = second - _MARGIN_SECONDS
            self._recent = {each: seen for each, seen in self._recent.items() if each >= oldest}
        self._recent.setdefault(second, Counter())[key] += 1

    def _second_of(self, stamp: str) -> int:
        if stamp != self._stamp[0]:
            self._stamp = (stamp, int(datetime.fromisoformat(stamp).timestamp()))
        return self._stamp[1]
