"""Ages and amounts, as kubectl writes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ditk_ray.kube.objects import kube_quantity, moment, seconds_since, show_age

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (119 * MINUTE + 20, "119m"),
        (2 * HOUR, "2h"),
        (47 * HOUR, "47h"),
        (2 * DAY + HOUR, "2d"),
    ],
)
def test_an_age_is_written_in_one_unit(seconds: float, shown: str) -> None:
    assert show_age(seconds) == shown


def test_times_are_read_with_and_without_fractions_and_nothing_else_is() -> None:
    now = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert seconds_since("2030-01-01T00:00:00Z", now) == 60
    assert seconds_since("2030-01-01T00:00:30.500000Z", now) == 29.5
    assert seconds_since("2030-01-01T00:02:00Z", now) == 0
    assert moment("") == moment(None) == moment("yesterday") == 0
    assert seconds_since("yesterday", now) == 0


@pytest.mark.parametrize(
    ("amount", "text"),
    [(2**40, "1Ti"), (16 * 2**30, "16Gi"), (3 * 2**29, "1536Mi"), (2**20 + 1, "1048577")],
)
def test_amounts_are_written_as_kubernetes_does(amount: int, text: str) -> None:
    assert kube_quantity(amount) == text
