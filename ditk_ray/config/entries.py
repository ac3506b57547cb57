"""DI-engine's training entries by name, as plain data."""

from __future__ import annotations

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

_NOT_SERIAL = {
    "parallel": "it starts processes of its own on several hosts",
    "dist": "it runs as several Kubernetes pods",
    "eval": "it trains nothing",
}


def entry_function_name(entry: str) -> str:
    """Return the function's name in `ding.entry`; raises ValueError for an unknown entry."""
    if entry in SERIAL_ENTRIES:
        return SERIAL_ENTRIES[entry]
    if entry in SERIAL_ENTRIES.values():
        return entry
    if entry in _NOT_SERIAL:
        raise ValueError(f"entry {entry!r} cannot run as a trial: {_NOT_SERIAL[entry]}")
    raise ValueError(f"unknown entry {entry!r}; {did_you_mean(entry, SERIAL_ENTRIES)}")
