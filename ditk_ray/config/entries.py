"""DI-engine's training entries by name, as plain data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ditk_ray.config.nearest import did_you_mean

# The suffixes of `ding.entry.serial_pipeline_*` in DI-engine 0.5.3.
_PIPELINES = (
    "bc",
    "bco",
    "dqfd",
    "dream",
    "dreamer",
    "dyna",
    "gail",
    "guided_cost",
    "ngu",
    "offline",
    "onpolicy",
    "onpolicy_ppg",
    "pc",
    "preference_based_irl",
    "preference_based_irl_onpolicy",
    "r2d3",
    "reward_model_offpolicy",
    "reward_model_onpolicy",
    "sqil",
    "td3_vae",
)

SERIAL_ENTRIES: dict[str, str] = {
    "serial": "serial_pipeline",
    **{f"serial_{suffix}": f"serial_pipeline_{suffix}" for suffix in _PIPELINES},
    # Names that `ding -m` uses for pipelines that are called otherwise.
    "serial_reward_model": "serial_pipeline_reward_model_offpolicy",
    "serial_trex": "serial_pipeline_preference_based_irl",
    "serial_trex_onpolicy": "serial_pipeline_preference_based_irl_onpolicy",
}
"""What `ding -m` calls an entry, and the function in `ding.entry` that it is."""

MAIN_ENTRY = "main"
"""The entry that is the config file's own `if __name__ == "__main__":` block."""

_NOT_SERIAL = {
    "parallel": "it starts processes of its own on several hosts",
    "dist": "it runs as several Kubernetes pods",
    "eval": "it trains nothing",
}


_LEARN_FROM_DATA = {"serial_pipeline_bc", "serial_pipeline_pc"}
"""The entries that call their limit `max_iter`."""


def entry_function_name(entry: str) -> str:
    """Return the function's name in `ding.entry`; raises ValueError for an unknown entry."""
    if entry in SERIAL_ENTRIES:
        return SERIAL_ENTRIES[entry]
    if entry in SERIAL_ENTRIES.values():
        return entry
    if entry in _NOT_SERIAL:
        raise ValueError(f"entry {entry!r} cannot run as a trial: {_NOT_SERIAL[entry]}")
    raise ValueError(
        f"unknown entry {entry!r}; {did_you_mean(entry, [*SERIAL_ENTRIES, MAIN_ENTRY])}"
    )


def entry_name(entry: str | Callable[..., Any]) -> str:
    """Return what to call an entry in front of the user."""
    return entry if isinstance(entry, str) else getattr(entry, "__name__", repr(entry))


def entry_arguments(
    entry: str | Callable[..., Any], arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments under the names that the entry knows them by.

    A function of the user's is given only what it takes. What a named entry
    takes is DI-engine's to say: it is asked before a sweep starts.
    """
    if not isinstance(entry, str):
        return fitting_arguments(entry, arguments)[0]
    if entry_function_name(entry) not in _LEARN_FROM_DATA:
        return dict(arguments)
    return {"max_iter" if key == "max_train_iter" else key: v for key, v in arguments.items()}


def fitting_arguments(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Split the arguments into those that the function takes and the names of the rest."""
    parameters = inspect.signature(function).parameters
    takes_all = any(item.kind is item.VAR_KEYWORD for item in parameters.values())
    taken = {key: v for key, v in arguments.items() if key in parameters or takes_all}
    return taken, [key for key in arguments if key not in taken]
