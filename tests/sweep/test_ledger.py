from __future__ import annotations

import json

from ditk_ray.sweep.ledger import Ledger, ledger_path, read_ledger
from ditk_ray.tracking.record import TrialRecord, TrialState


def test_what_was_drawn_comes_back_exactly_also_what_json_does_not_know(tmp_path):
    drawn = {"sizes": (64, 64), "kind": complex(1, 2), "rate": 0.1 + 0.2}
    Ledger(tmp_path).made("trial_00000", drawn, {"rate": 0.3})
    assert read_ledger(tmp_path).drawn == {"trial_00000": drawn}


def test_a_trial_that_has_ended_is_known_with_its_record(tmp_path):
    ledger = Ledger(tmp_path)
    for name in ("trial_00000", "trial_00001"):
        ledger.made(name, {}, {})
    record = TrialRecord("trial_00000", {"x": 1}, TrialState.SUCCEEDED, metrics={"eval_value": 7})
    ledger.ended(record)

    entries = read_ledger(tmp_path)

    assert list(entries.drawn) == ["trial_00000", "trial_00001"]
    assert list(entries.ended) == ["trial_00000"]
    assert entries.ended["trial_00000"]["metrics"] == {"eval_value": 7}


def test_a_trial_that_is_opened_again_has_not_ended(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.made("trial_00000", {}, {})
    ledger.ended(TrialRecord("trial_00000", {}, TrialState.FAILED))
    ledger.reopened("trial_00000")
    assert read_ledger(tmp_path).ended == {}


def test_a_line_that_was_cut_off_costs_only_itself(tmp_path):
    ledger = Ledger(tmp_path)
    ledger.made("trial_00000", {}, {})
    ledger.close()
    whole = ledger_path(tmp_path).read_text()
    ledger_path(tmp_path).write_text(whole + whole[: len(whole) // 2])
    ledger = Ledger(tmp_path)
    ledger.made("trial_00001", {}, {})
    assert list(read_ledger(tmp_path).drawn) == ["trial_00000", "trial_00001"]


def test_a_sweep_without_a_ledger_has_no_trials(tmp_path):
    assert read_ledger(tmp_path).drawn == {}


def test_a_ledger_can_be_read_by_people(tmp_path):
    Ledger(tmp_path).made("trial_00000", {"a.b": 1}, {"a.b": 1})
    (line,) = ledger_path(tmp_path).read_text().splitlines()
    assert json.loads(line)["params"] == {"a.b": 1}
