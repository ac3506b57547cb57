"""DI-engine's entries by name."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from ditk_ray.config.entries import SERIAL_ENTRIES, entry_function_name


@pytest.mark.parametrize(
    ("entry", "function"),
    [
        ("serial", "serial_pipeline"),
        ("serial_onpolicy", "serial_pipeline_onpolicy"),
        ("serial_offline", "serial_pipeline_offline"),
        ("serial_reward_model", "serial_pipeline_reward_model_offpolicy"),
        ("serial_trex_onpolicy", "serial_pipeline_preference_based_irl_onpolicy"),
        ("serial_pipeline_bc", "serial_pipeline_bc"),
    ],
)
def test_an_entry_is_known_by_its_short_and_its_full_name(entry, function):
    assert entry_function_name(entry) == function


def test_the_entries_are_exactly_the_serial_pipelines_that_di_engine_exports():
    ding = Path(importlib.util.find_spec("ding").submodule_search_locations[0])
    exports = (ding / "entry" / "__init__.py").read_text()

    assert set(SERIAL_ENTRIES.values()) == set(re.findall(r"\bserial_pipeline\w*", exports))


@pytest.mark.parametrize(
    ("wrong", "right"), [("serial_onpolcy", "serial_onpolicy"), ("Serial", "serial")]
)
def test_an_unknown_entry_names_the_similar_ones(wrong, right):
    with pytest.raises(ValueError, match=f"unknown entry '{wrong}'; did you mean '{right}'"):
        entry_function_name(wrong)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [("parallel", "several hosts"), ("dist", "Kubernetes pods"), ("eval", "trains nothing")],
)
def test_an_entry_that_cannot_be_a_trial_is_refused_with_the_reason(entry, reason):
    with pytest.raises(ValueError, match=f"entry '{entry}' cannot run as a trial.*{reason}"):
        entry_function_name(entry)
