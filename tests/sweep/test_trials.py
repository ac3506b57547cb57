from __future__ import annotations

import itertools
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ditk_ray.config.space import build_space
from ditk_ray.record.record import TrialRecord, TrialState
from ditk_ray.record.sweep_folder import STATE_FOLDER
from ditk_ray.search.searchers import ModelSearcher, build_searcher
from ditk_ray.sweep.trials import (
    Exhausted,
    Ledger,
    SearcherSampler,
    SpaceSampler,
    ledger_path,
    read_ledger,
)

SPACE = {"rate": tune.loguniform(1e-5, 1e-1), "size": tune.choice([1, 2, 3])}


def drawn(sampler: SpaceSampler, count: int) -> list[Any]:
    return [sampler.draw(str(number)) for number in range(count)]


def test_the_same_seed_draws_the_same_and_another_one_does_not():
    assert drawn(SpaceSampler(SPACE, 1), 5) == drawn(SpaceSampler(SPACE, 1), 5)
    assert drawn(SpaceSampler(SPACE, 1), 5) != drawn(SpaceSampler(SPACE, 2), 5)


def test_draws_that_go_on_pass_over_what_was_drawn():
    whole = drawn(SpaceSampler(SPACE, 1), 5)
    assert drawn(SpaceSampler(SPACE, 1, passed=3), 2) == whole[3:]


def test_a_grid_is_gone_through_for_every_sample():
    space = {"size": tune.grid_search([1, 2]), "kind": tune.grid_search(["a", "b"])}
    points = {(one["size"], one["kind"]) for one in drawn(SpaceSampler(space, 0), 4)}
    assert points == set(itertools.product([1, 2], ["a", "b"]))
    assert drawn(SpaceSampler(space, 0), 8)[4:] == drawn(SpaceSampler(space, 0), 4)


def test_known_points_come_first_and_what_they_leave_open_is_drawn():
    first, second, third = drawn(SpaceSampler(SPACE, 0, [{"rate": 0.5, "size": 9}, {"size": 7}]), 3)
    assert first == {"rate": 0.5, "size": 9}
    assert second["size"] == 7
    assert 1e-5 <= second["rate"] <= 1e-1
    assert third["size"] in (1, 2, 3)


def optuna() -> OptunaSearch:
    import optuna

    searcher = OptunaSearch(sampler=optuna.samplers.TPESampler(seed=1, n_startup_trials=2))
    searcher.set_search_properties("score", "max", SPACE)
    return searcher


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / STATE_FOLDER).mkdir()
    return tmp_path


def test_a_searcher_that_is_restored_goes_on_as_if_nothing_had_happened(folder):
    def run(sampler: SearcherSampler, numbers: range) -> list[Any]:
        found = []
        for number in numbers:
            found.append(sampler.draw(f"{number:05d}"))
            sampler._next_save = 0.0  # however long it took on a busy machine
            sampler.ended(f"{number:05d}", found[-1], {"score": -abs(found[-1]["rate"] - 0.01)})
            sampler._next_save = 0.0
        return found

    unbroken = run(SearcherSampler(optuna(), folder / "unbroken"), range(8))
    run(SearcherSampler(optuna(), folder), range(5))
    resumed = SearcherSampler(optuna(), folder)
    assert resumed.restore()
    assert run(resumed, range(5, 8)) == unbroken[5:]


def test_a_trial_that_was_drawn_before_the_kill_is_answered_after_it(folder):
    first = SearcherSampler(optuna(), folder)
    drawn = first.draw("00000")
    second = SearcherSampler(optuna(), folder)
    assert second.restore()
    second.ended("00000", drawn, {"score": 3.0})
    (trial,) = second.searcher._ot_study.trials
    assert (trial.value, trial.params) == (3.0, drawn)


def test_a_trial_that_the_saved_state_does_not_know_is_learned_as_a_point(folder):
    sampler = SearcherSampler(optuna(), folder)
    sampler.ended("00000", {"rate": 0.01, "size": 2}, {"score": 5.0})
    (trial,) = sampler.searcher._ot_study.trials
    assert (trial.value, trial.params) == (5.0, {"rate": 0.01, "size": 2})


def test_a_suggestion_that_the_saved_state_lacks_is_recognised_and_not_made_again(folder):
    first = SearcherSampler(optuna(), folder)
    first.draw("00000")
    kept = first._file.read_bytes()
    drawn = first.draw("00001")
    first._file.write_bytes(kept)  # as if it had been killed before it was saved
    second = SearcherSampler(optuna(), folder)
    assert second.restore()
    second.recognise("00001", drawn)
    assert second.draw("00002") not in (drawn, None)
    second.ended("00001", drawn, {"score": 2.0})
    values = [trial.value for trial in second.searcher._ot_study.trials]
    assert values == [None, 2.0, None]


def test_what_ended_is_learned_once(folder):
    sampler = SearcherSampler(optuna(), folder)
    drawn = sampler.draw("00000")
    for _ in range(2):
        sampler.ended("00000", drawn, {"score": 1.0})
    assert len(sampler.searcher._ot_study.trials) == 1


def test_without_a_saved_state_there_is_nothing_to_restore(folder):
    assert not SearcherSampler(optuna(), folder).restore()


def tpe(objectives: tuple[tuple[str, str], ...] = (("score", "max"),)) -> ModelSearcher:
    searcher = build_searcher("tpe", {}, build_space(SPACE), objectives, seed=1)
    assert searcher is not None
    return searcher


def studied(sampler: SearcherSampler) -> list[Any]:
    """Return what the study behind a searcher by name holds."""
    assert isinstance(sampler.searcher, ModelSearcher)
    return list(sampler.searcher.inner._ot_study.trials)


POINT = {"rate": 0.01, "size": 2}


def test_a_searcher_by_name_learns_of_a_trial_that_its_state_lacks(folder):
    sampler = SearcherSampler(tpe(), folder)
    sampler.ended("00000", POINT, {"score": 5.0})
    (trial,) = studied(sampler)
    assert (trial.value, trial.params) == (5.0, POINT)


def test_a_searcher_for_several_objectives_learns_all_of_them(folder):
    sampler = SearcherSampler(tpe((("score", "max"), ("time", "min"))), folder)
    sampler.ended("00000", POINT, {"score": 5.0, "time": 3.0})
    sampler.ended("00001", POINT, {"score": 5.0})
    (trial,) = studied(sampler)
    assert trial.values == [5.0, 3.0]


def test_a_point_that_a_searcher_refuses_costs_only_itself(folder, caplog):
    sampler = SearcherSampler(tpe(), folder)
    sampler.ended("00000", {"rate": 7.0, "size": 2}, {"score": 5.0})
    assert studied(sampler) == []
    assert "does not take an earlier trial" in caplog.text


def test_a_failed_trial_that_is_run_again_is_learned_when_it_ends_well(folder):
    sampler = SearcherSampler(tpe(), folder)
    drawn = sampler.draw("00000")
    sampler.ended("00000", drawn, None)
    sampler.reopen("00000")
    for _ in range(2):
        sampler.ended("00000", drawn, {"score": 4.0})
    assert [trial.value for trial in studied(sampler)] == [None, 4.0]


class Unpicklable(Searcher):
    def suggest(self, trial_id: str) -> Any:
        return {"rate": 1.0}

    def on_trial_complete(self, *_: Any, **__: Any) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        pickle.dumps(lambda: self)


def test_a_searcher_that_cannot_be_pickled_searches_all_the_same(folder):
    sampler = SearcherSampler(Unpicklable("score", "max"), folder)
    assert sampler.draw("00000") == {"rate": 1.0}
    assert not sampler.restore()


class Unsaved(Searcher):
    def suggest(self, trial_id: str) -> Any:
        return {"rate": 1.0} if trial_id < "00002" else Searcher.FINISHED

    def on_trial_complete(self, *_: Any, **__: Any) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        raise NotImplementedError


def test_a_searcher_that_cannot_be_saved_searches_all_the_same(folder):
    sampler = SearcherSampler(Unsaved("score", "max"), folder)
    assert sampler.draw("00000") == {"rate": 1.0}
    sampler.ended("00000", {"rate": 1.0}, None)
    with pytest.raises(Exhausted):
        sampler.draw("00002")


# The ledger


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
