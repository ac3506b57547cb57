"""Reading numbers and amounts that a user gives, and keeping all that is wrong with them."""

from __future__ import annotations

from ditk_ray.config.quantities import parse_bytes
from ditk_ray.errors import Problem

MOST = 2**31 - 1
"""How far KubeRay counts: its numbers are of 32 bits."""

_UNITS = ((2**40, "Ti"), (2**30, "Gi"), (2**20, "Mi"))


class RequestValues:
    """Turns texts into values; what cannot be read is among `problems`, and is the least."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def count(self, where: str, text: str, least: int = 0) -> int:
        """Return a whole number that KubeRay can count to."""
        number = whole_number(text)
        if number is not None and number >= least:
            return number
        what = f"is {text!r}; it has to be a whole number, {least} or more, and {MOST} at most"
        self.problems.append(Problem(where, what))
        return least

    def memory(self, where: str, text: str) -> int:
        """Return an amount in bytes, which is more than none."""
        try:
            amount = parse_bytes(text)
        except ValueError as error:
            self.problems.append(Problem(where, str(error)))
            return 1
        if amount < 2**20:
            self.problems.append(Problem(where, f"is {text!r}, less than 1M; write it like '8G'"))
        return max(1, amount)

    def quantity(self, where: str, text: str) -> str:
        """Return an amount as Kubernetes writes it."""
        return quantity_of(self.memory(where, text))


def whole_number(text: str) -> int | None:
    """Return a number that is not negative and that KubeRay can count to; None if it is none."""
    digits = text.lstrip("0") or text[:1]
    # int() refuses to read thousands of digits.
    if not (digits.isascii() and digits.isdecimal() and len(digits) <= len(str(MOST))):
        return None
    number = int(digits)
    return number if number <= MOST else None


def quantity_of(amount: int) -> str:
    """Write a number of bytes as Kubernetes does: `16Gi`, `512Mi`, or the number."""
    for size, unit in _UNITS:
        if amount % size == 0 and amount >= size:
            return f"{amount // size}{unit}"
    return str(amount)
