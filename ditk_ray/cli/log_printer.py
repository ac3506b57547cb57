"""Printing logs to the standard output: one as it is, several told apart."""

from __future__ import annotations

import contextlib
import io
import sys

from ditk_ray.tracking.log_reading import Piece

_LONGEST_LINE = 64 * 1024


class LogPrinter:
    """Prints texts as they come; each log but a lone one begins with a heading."""

    def __init__(self, is_lone: bool) -> None:
        # A terminal that cannot show a character must not end the command.
        with contextlib.suppress(AttributeError, io.UnsupportedOperation):
            sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
        self.is_empty = True
        self._is_lone = is_lone
        self._heading = ""
        self._ends_whole = True

    def show(self, piece: Piece) -> None:
        """Print one piece."""
        self._head(f"attempt {piece.attempt} {piece.seed}".rstrip())
        self._write(piece.text)

    def flush(self) -> None:
        """Let what was printed be seen."""
        sys.stdout.flush()

    def close(self) -> None:
        """Print what is left."""
        self.flush()

    def _head(self, heading: str) -> None:
        if heading != self._heading and not (self._is_lone and self.is_empty):
            self._write(("" if self._ends_whole else "\n") + f"==> {heading} <==\n")
        self._heading = heading

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        self.is_empty = False
        self._ends_whole = text.endswith("\n")


class SeedPrinter(LogPrinter):
    """Prints the logs of several seeds as they grow: whole lines, each with its seed."""

    def __init__(self) -> None:
        super().__init__(is_lone=True)
        self._rest: dict[str, str] = {}

    def show(self, piece: Piece) -> None:
        """Print the lines that are whole by now."""
        heading = f"attempt {piece.attempt}"
        if heading != self._heading:
            self._write_rest()
        self._head(heading)
        lines = (self._rest.pop(piece.seed, "") + piece.text).split("\n")
        rest = lines.pop()
        if len(rest) > _LONGEST_LINE:
            lines.append(rest)
        elif rest:
            self._rest[piece.seed] = rest
        for line in lines:
            self._write(f"{piece.seed} | {line}\n")

    def close(self) -> None:
        """Print what is left."""
        self._write_rest()
        self.flush()

    def _write_rest(self) -> None:
        for seed, rest in self._rest.items():
            self._write(f"{seed} | {rest}\n")
        self._rest.clear()
