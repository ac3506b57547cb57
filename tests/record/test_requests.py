from __future__ import annotations

import threading

import pytest

from ditk_ray.record.sweep_folder import (
    REQUESTS_FOLDER,
    Action,
    Answer,
    NoAnswerError,
    Request,
    ask,
    discard_requests,
    give_answer,
    waiting_requests,
)
from tests.processes import wait_until


def test_a_request_is_answered_by_whoever_looks_and_leaves_nothing(tmp_path):
    answers: list[Answer] = []
    request = Request(Action.PRIORITY, "trial_00001", 3)
    asking = threading.Thread(target=lambda: answers.append(ask(tmp_path, request)))
    asking.start()
    ((path, seen),) = wait_until(lambda: list(waiting_requests(tmp_path)), 5, "the request")
    assert seen == request
    give_answer(path, Answer(True, "fine"))
    asking.join(5)
    assert answers == [Answer(True, "fine")]
    assert list((tmp_path / REQUESTS_FOLDER).iterdir()) == []


def test_a_request_that_nobody_answers_is_withdrawn(tmp_path):
    with pytest.raises(NoAnswerError, match="nothing was changed"):
        ask(tmp_path, Request(Action.CANCEL), seconds=0.2)
    assert list(waiting_requests(tmp_path)) == []


def test_an_answer_to_a_request_that_was_withdrawn_is_not_left_behind(tmp_path):
    (tmp_path / REQUESTS_FOLDER).mkdir()
    give_answer(tmp_path / REQUESTS_FOLDER / "1-gone.request", Answer(True, "too late"))
    assert list((tmp_path / REQUESTS_FOLDER).iterdir()) == []


def test_requests_come_in_the_order_they_were_made_and_nonsense_is_removed(tmp_path):
    place = tmp_path / REQUESTS_FOLDER
    place.mkdir()
    for name, text in (
        ("2-b", '{"action": "pause", "trial": "b", "priority": null}'),
        ("1-a", '{"action": "pause", "trial": "a", "priority": null}'),
        ("3-c", '{"action": "explode", "trial": "c", "priority": null}'),
        ("4-d", "[]"),
    ):
        (place / f"{name}.request").write_text(text)
    assert [request.trial for _, request in waiting_requests(tmp_path)] == ["a", "b"]
    assert not (place / "3-c.request").exists()
    assert not (place / "4-d.request").exists()


def test_what_nobody_waits_for_any_more_is_forgotten(tmp_path):
    (tmp_path / REQUESTS_FOLDER).mkdir()
    text = '{"action": "cancel", "trial": null, "priority": null}'
    (tmp_path / REQUESTS_FOLDER / "1-old.request").write_text(text)
    discard_requests(tmp_path)
    assert list(waiting_requests(tmp_path)) == []


def test_a_sweep_that_was_never_asked_has_no_requests(tmp_path):
    assert list(waiting_requests(tmp_path)) == []
