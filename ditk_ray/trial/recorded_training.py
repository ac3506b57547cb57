"""Training a trial again from the config file that it left behind."""

from __future__ import annotations

import inspect
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RecordedTraining:
    """An entry that trains what a trial's `config.py` says, exactly as that file does it."""

    file: Path

    def __call__(self, config: Any, seed: int = 0) -> Any:
        """Call the file's own `train`; the config that is given is the file's already."""
        train = runpy.run_path(str(self.file))["train"]
        takes_seed = "seed" in inspect.signature(train).parameters
        return train(seed) if takes_seed else train()
