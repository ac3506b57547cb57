"""What a person sees of a recorded sweep in MLflow's own UI."""

from __future__ import annotations

import pytest

from ditk_ray.record.record import TrialState
from ditk_ray.tracking.recording import mlflow_page, read_recording
from tests.processes import PATIENCE
from tests.tracking.played_sweep import PlayedSweep

pytestmark = [pytest.mark.mlflow, pytest.mark.browser]

SECONDS = 60_000 * PATIENCE


def test_a_sweep_is_shown_with_its_trials_below_it(chromium, mlflow_server, tmp_path):
    sweep = PlayedSweep(tmp_path / "shown", mlflow_server.uri, experiment="seen").start()
    for number in range(3):
        trial = sweep.trial(number)
        sweep.report(trial, number, 100)
        sweep.set_state(trial, TrialState.SUCCEEDED)
    sweep.end()
    recording = read_recording(sweep.folder)
    page = chromium.new_page()
    page.set_default_timeout(SECONDS)
    try:
        place = f"experiments/{recording.experiment_id}/runs"
        page.goto(mlflow_page(mlflow_server.uri, place))
        parent = page.get_by_role("link", name="shown", exact=True)
        parent.wait_for(timeout=SECONDS)
        children = page.get_by_role("link", name="trial_")
        assert children.count() == 0  # folded
        row = parent.locator("xpath=ancestor::*[@role='row'][1]")
        row.get_by_role("button").first.click()
        children.nth(2).wait_for(timeout=SECONDS)
        assert sorted(children.all_inner_texts()) == ["trial_00000", "trial_00001", "trial_00002"]

        page.goto(recording.page(mlflow_server.uri))
        page.get_by_text("Best: trial_00002, eval_value 2.").wait_for(timeout=SECONDS)
        page.get_by_role("link", name="trial_00001").first.wait_for(timeout=SECONDS)
    finally:
        page.close()
