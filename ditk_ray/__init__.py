"""Tune DI-engine experiments at scale with Ray Tune.

`JobCfg`, `when`, `any_of` and `all_of` are all that a sweep's file needs. They are
loaded when they are first used, so that `import ditk_ray` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ditk_ray.config.job_cfg import JobCfg
    from ditk_ray.config.space import when
    from ditk_ray.search.stoppers import all_of, any_of

__version__ = "0.2.0"
__all__ = ["JobCfg", "__version__", "all_of", "any_of", "when"]

_HOMES = {
    "JobCfg": "ditk_ray.config.job_cfg",
    "all_of": "ditk_ray.search.stoppers",
    "any_of": "ditk_ray.search.stoppers",
    "when": "ditk_ray.config.space",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
