"""Training a trial again from the config file that it left behind."""

from __future__ import annotations

import inspect
import runpy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ditk_ray.config.main_block import is_patched
from ditk_ray.trial.main_run import run_as_main


@dataclass(frozen=True)
class RecordedTraining:
    """An entry that trains what a trial's `config.py` says, exactly as that file does it."""

    file: Path

    def __call__(self, config: Any, seed: int = 0) -> Any:
        """Call the file's own `train`, or run its main block if that is what trained it.

        The config that is given is the file's already.
        """
        text = self.file.read_text(encoding="utf-8")
        if is_patched(text):
            return run_as_main(text, str(self.file), str(self.file))
        train = runpy.run_path(str(self.file))["train"]
        takes_seed = "seed" in inspect.signature(train).parameters
        return train(seed) if takes_seed else train()
