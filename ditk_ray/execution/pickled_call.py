"""Sending Python objects to other processes together with where their modules are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cloudpickle


@dataclass(frozen=True)
class Pickled:
    """A pickled value, and the folders that have to be importable before it is loaded.

    What a user's file defines may refer to modules beside that file, which no
    other process knows of.
    """

    pickled: bytes
    python_path: tuple[str, ...]

    @classmethod
    def pack(cls, value: Any, python_path: Sequence[str] = ()) -> Pickled:
        """Pickle a value; functions of a file that is not a module are pickled whole."""
        return cls(cloudpickle.dumps(value), tuple(python_path))

    def unpack(self) -> Any:
        """Make the folders importable in this process and load the value."""
        known = set(sys.path)
        sys.path[:0] = [p for p in self.python_path if p not in known and Path(p).is_dir()]
        return cloudpickle.loads(self.pickled)
