"""What each MLflow run has to learn from a journal's events; no store is needed."""

from __future__ import annotations

import itertools

from ditk_ray.tracking.mlflow_store import PARENT, UpdateCollector

CLOCK = itertools.count(1000)
SWEEP = {"name": "s", "metric": "eval_value", "mode": "max", "folder": "f", "job": {}}


def event(kind, **values):
    return {"kind": kind, "time": next(CLOCK), **values}


def end(status="finished", **values):
    return event("end", status=status, **{"unfinished": [], "best_trial": ""} | values)


def state(trial, name):
    return event("state", trial=trial, state=name, tags={})


def collected(*events):
    return UpdateCollector().collect(events)


def test_the_parent_is_made_before_its_children_and_ended_after_them():
    updates = collected(
        event("trial", trial="a", params={}, tags={}), event("sweep", **SWEEP), end()
    )

    assert [update.trial for update in updates] == [PARENT, "a", PARENT]
    assert [update.status for update in updates] == ["RUNNING", None, "FINISHED"]


def test_events_of_one_trial_become_one_update():
    updates = collected(
        event("trial", trial="a", params={"lr": 1}, tags={"seed": 0}),
        *[event("metrics", trial="a", step=n, values={"x": n, "name": "b"}) for n in range(9)],
        state("a", "succeeded"),
    )

    (update,) = updates
    assert [(metric.key, metric.value, metric.step) for metric in update.metrics] == [
        ("x", n, n) for n in range(9)
    ]
    assert update.status == "FINISHED"
    assert update.tags == {"ditk_ray.seed": 0, "ditk_ray.state": "succeeded"}


def test_a_sweep_that_goes_on_after_its_end_is_not_ended():
    updates = collected(end("interrupted", unfinished=["a"]), event("sweep", **SWEEP))

    assert {update.trial: update.status for update in updates} == {PARENT: "RUNNING", "a": "KILLED"}


def test_a_trial_that_goes_on_after_an_interrupted_sweep_runs_again():
    (update,) = [
        update
        for update in collected(end("interrupted", unfinished=["a"]), state("a", "running"))
        if update.trial == "a"
    ]

    assert update.status == "RUNNING"


def test_an_event_that_cannot_be_understood_does_not_hold_up_the_others():
    (update,) = collected(
        {"kind": "metrics", "time": 1, "trial": "a"},
        event("metrics", trial="a", step="?", values=None),
        event("metrics", trial="a", step=1, values={"x": 1}),
    )

    assert [metric.value for metric in update.metrics] == [1]


def test_the_parent_names_the_pareto_set():
    progress = {"counts": {"running": 1}, "best": None}
    (update,) = collected(event("progress", **progress, pareto=["trial_00002", "trial_00000"]))
    assert update.tags == {"ditk_ray.pareto_set": "trial_00002, trial_00000"}

    (update,) = collected(event("progress", **progress, pareto=[]))
    assert update.tags == {}


def test_kinds_of_a_later_version_are_passed_over():
    assert collected(event("mood", trial="a")) == []
