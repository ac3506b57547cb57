"""Names and labels."""

from __future__ import annotations

import re

import pytest

from ditk_ray.dijob.jobs import SEED, SWEEP, TRIAL, JobIdentity, sweep_key


@pytest.mark.parametrize("name", ["CartpoleDQNJobCfg_2026", "Über uns", "", "x" * 200, "a" * 55])
def test_a_sweeps_key_is_a_label_whatever_its_name(name: str) -> None:
    key = sweep_key(name, "an id")

    assert len(key) <= 63
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?-[0-9a-f]{6}", key)


def test_two_sweeps_of_one_name_have_two_keys_and_one_sweep_always_the_same() -> None:
    assert sweep_key("a", "1") == sweep_key("a", "1") != sweep_key("a", "2")


def test_a_jobs_name_tells_sweep_trial_and_attempt() -> None:
    identity = JobIdentity("cartpole-0a1b2c", "trial_00003", attempt=2, seed=7)

    assert identity.job_name("dqn") == "dqn-0a1b2c-00003-2"


def test_a_jobs_name_tells_the_seed_if_there_are_several() -> None:
    identity = JobIdentity("cartpole-0a1b2c", "trial_00003", seed=7, has_several_seeds=True)

    assert identity.job_name("dqn") == "dqn-0a1b2c-00003-0-s7"
    assert identity.labels.items() >= {
        (SWEEP, "cartpole-0a1b2c"),
        (TRIAL, "trial_00003"),
        (SEED, "7"),
    }
