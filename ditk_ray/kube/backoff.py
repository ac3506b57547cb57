"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random


class Backoff:
    """Pauses that grow, with a random part so that many do not come back at once.

    Not for use by several threads.
    """

    def __init__(self, first: float = 0.1, longest: float = 10.0) -> None:
        self._first = first
        self._longest = longest
        self._next = first

    def pause(self) -> float:
        """Return the seconds to wait now; those after it will be longer."""
        longest, self._next = self._next, min(self._next * 2, self._longest)
        return longest * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        """Begin again with the shortest pause: it worked."""
        self._next = self._first
