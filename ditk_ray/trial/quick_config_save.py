"""A fast way for DI-engine to save its compiled config.

Every entry writes `total_config.py` through the yapf formatter, whose search for
the prettiest line breaks takes about two seconds of each trial. The same dict is
written here by the standard library's printer in milliseconds.
"""

from __future__ import annotations

import pprint
import re
from pathlib import Path
from typing import Any

from ditk_ray.config import dotted


def install_quick_save() -> None:
    """Replace DI-engine's writer in this process."""
    import ding.config.config

    ding.config.config.save_config_py = save_config_py


def save_config_py(config: dict[str, Any], path: str) -> None:
    """Write `exp_config = {...}`, as the function that this one stands in for does."""
    text = pprint.pformat(dotted.plain(config), width=100, sort_dicts=False)
    text = re.sub(r"(?<![\w'\"])(inf|nan)\b(?!['\"])", r'float("\1")', text)
    Path(path).write_text(f"exp_config = {text}\n")
