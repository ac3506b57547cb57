from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import pytest
from ray import tune
from ray.tune.search import Searcher
from ray.tune.search.optuna import OptunaSearch

from ditk_ray.config.space import build_space
from ditk_ray.search.model_searcher import ModelSearcher
from ditk_ray.search.searchers import build_searcher
from ditk_ray.sweep.draws import Exhausted, SearcherDraws, SpaceDraws
from ditk_ray.sweep.ledger import STATE_FOLDER

SPACE = {"rate": tune.loguniform(1e-5, 1e-1), "size": tune.choice([1, 2, 3])}


def drawn(draws: SpaceDraws, count: int) -> list[Any]:
    return [draws.draw(str(number)) for number in range(count)]


def test_the_same_seed_draws_the_same_and_another_one_does_not():
    assert drawn(SpaceDraws(SPACE, 1), 5) == drawn(SpaceDraws(SPACE, 1), 5)
    assert drawn(SpaceDraws(SPACE, 1), 5) != drawn(SpaceDraws(SPACE, 2), 5)


def test_draws_that_go_on_pass_over_what_was_drawn():
    whole = drawn(SpaceDraws(SPACE, 1), 5)
    assert drawn(SpaceDraws(SPACE, 1, passed=3), 2) == whole[3:]


def test_a_grid_is_gone_through_for_every_sample():
    space = {"size": tune.grid_search([1, 2]), "kind": tune.grid_search(["a", "b"])}
    points = {(one["size"], one["kind"]) for one in drawn(SpaceDraws(space, 0), 4)}
    assert points == set(itertools.product([1, 2], ["a", "b"]))
    assert drawn(SpaceDraws(space, 0), 8)[4:] == drawn(SpaceDraws(space, 0), 4)


def test_known_points_come_first_and_what_they_leave_open_is_drawn():
    first, second, third = drawn(SpaceDraws(SPACE, 0, [{"rate": 0.5, "size": 9}, {"size": 7}]), 3)
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
    def run(draws: SearcherDraws, numbers: range) -> list[Any]:
        found = []
        for number in numbers:
            found.append(draws.draw(f"{number:05d}"))
            draws._next_save = 0.0  # however long it took on a busy machine
            draws.ended(f"{number:05d}", found[-1], {"score": -abs(found[-1]["rate"] - 0.01)})
            draws._next_save = 0.0
        return found

    unbroken = run(SearcherDraws(optuna(), folder / "unbroken"), range(8))
    run(SearcherDraws(optuna(), folder), range(5))
    resumed = SearcherDraws(optuna(), folder)
    assert resumed.restore()
    assert run(resumed, range(5, 8)) == unbroken[5:]


def test_a_trial_that_was_drawn_before_the_kill_is_answered_after_it(folder):
    first = SearcherDraws(optuna(), folder)
    drawn = first.draw("00000")
    second = SearcherDraws(optuna(), folder)
    assert second.restore()
    second.ended("00000", drawn, {"score": 3.0})
    (trial,) = second.searcher._ot_study.trials
    assert (trial.value, trial.params) == (3.0, drawn)


def test_a_trial_that_the_saved_state_does_not_know_is_learned_as_a_point(folder):
    draws = SearcherDraws(optuna(), folder)
    draws.ended("00000", {"rate": 0.01, "size": 2}, {"score": 5.0})
    (trial,) = draws.searcher._ot_study.trials
    assert (trial.value, trial.params) == (5.0, {"rate": 0.01, "size": 2})


def test_a_suggestion_that_the_saved_state_lacks_is_recognised_and_not_made_again(folder):
    first = SearcherDraws(optuna(), folder)
    first.draw("00000")
    kept = first._file.read_bytes()
    drawn = first.draw("00001")
    first._file.write_bytes(kept)  # as if it had been killed before it was saved
    second = SearcherDraws(optuna(), folder)
    assert second.restore()
    second.recognise("00001", drawn)
    assert second.draw("00002") not in (drawn, None)
    second.ended("00001", drawn, {"score": 2.0})
    values = [trial.value for trial in second.searcher._ot_study.trials]
    assert values == [None, 2.0, None]


def test_what_ended_is_learned_once(folder):
    draws = SearcherDraws(optuna(), folder)
    drawn = draws.draw("00000")
    for _ in range(2):
        draws.ended("00000", drawn, {"score": 1.0})
    assert len(draws.searcher._ot_study.trials) == 1


def test_without_a_saved_state_there_is_nothing_to_restore(folder):
    assert not SearcherDraws(optuna(), folder).restore()


def tpe(objectives: tuple[tuple[str, str], ...] = (("score", "max"),)) -> ModelSearcher:
    searcher = build_searcher("tpe", {}, build_space(SPACE), objectives, seed=1)
    assert searcher is not None
    return searcher


def studied(draws: SearcherDraws) -> list[Any]:
    """Return what the study behind a searcher by name holds."""
    assert isinstance(draws.searcher, ModelSearcher)
    return list(draws.searcher.inner._ot_study.trials)


POINT = {"rate": 0.01, "size": 2}


def test_a_searcher_by_name_learns_of_a_trial_that_its_state_lacks(folder):
    draws = SearcherDraws(tpe(), folder)
    draws.ended("00000", POINT, {"score": 5.0})
    (trial,) = studied(draws)
    assert (trial.value, trial.params) == (5.0, POINT)


def test_a_searcher_for_several_objectives_learns_all_of_them(folder):
    draws = SearcherDraws(tpe((("score", "max"), ("time", "min"))), folder)
    draws.ended("00000", POINT, {"score": 5.0, "time": 3.0})
    draws.ended("00001", POINT, {"score": 5.0})
    (trial,) = studied(draws)
    assert trial.values == [5.0, 3.0]


def test_a_point_that_a_searcher_refuses_costs_only_itself(folder, caplog):
    draws = SearcherDraws(tpe(), folder)
    draws.ended("00000", {"rate": 7.0, "size": 2}, {"score": 5.0})
    assert studied(draws) == []
    assert "does not take an earlier trial" in caplog.text


def test_a_failed_trial_that_is_run_again_is_learned_when_it_ends_well(folder):
    draws = SearcherDraws(tpe(), folder)
    drawn = draws.draw("00000")
    draws.ended("00000", drawn, None)
    draws.reopen("00000")
    for _ in range(2):
        draws.ended("00000", drawn, {"score": 4.0})
    assert [trial.value for trial in studied(draws)] == [None, 4.0]


class Unpicklable(Searcher):
    def suggest(self, trial_id: str) -> Any:
        return {"rate": 1.0}

    def on_trial_complete(self, *_: Any, **__: Any) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        pickle.dumps(lambda: self)


def test_a_searcher_that_cannot_be_pickled_searches_all_the_same(folder):
    draws = SearcherDraws(Unpicklable("score", "max"), folder)
    assert draws.draw("00000") == {"rate": 1.0}
    assert not draws.restore()


class Unsaved(Searcher):
    def suggest(self, trial_id: str) -> Any:
        return {"rate": 1.0} if trial_id < "00002" else Searcher.FINISHED

    def on_trial_complete(self, *_: Any, **__: Any) -> None: ...

    def save(self, checkpoint_path: str) -> None:
        raise NotImplementedError


def test_a_searcher_that_cannot_be_saved_searches_all_the_same(folder):
    draws = SearcherDraws(Unsaved("score", "max"), folder)
    assert draws.draw("00000") == {"rate": 1.0}
    draws.ended("00000", {"rate": 1.0}, None)
    with pytest.raises(Exhausted):
        draws.draw("00002")
