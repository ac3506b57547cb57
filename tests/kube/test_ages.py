"""Ages, as kubectl writes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from ditk_ray.kube.ages import read_time, seconds_since, show_age

MINUTE, HOUR, DAY = 60, 3600, 86400


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (-3, "0s"),
        (0.9, "0s"),
        (119, "119s"),
        (2 * MINUTE, "2m"),
        (3 * MINUTE + 20, "3m20s"),
        (10 * MINUTE + 20, "10m"),
        (179 * MINUTE, "179m"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (8 * HOUR + 5 * MINUTE, "8h"),
        (47 * HOUR, "47h"),
        (2 * DAY + HOUR, "2d1h"),
        (9 * DAY + HOUR, "9d"),
    ],
)
def test_an_age_is_told_in_at_most_two_units(seconds: float, shown: str) -> None:
    assert show_age(seconds) == shown


def test_times_are_read_with_and_without_fractions_and_nothing_else_is() -> None:
    now = datetime(2030, 1, 1, 0, 1, tzinfo=UTC)
    assert seconds_since("2030-01-01T00:00:00Z", now) == 60
    assert seconds_since("2030-01-01T00:00:30.500000Z", now) == 29.5
    assert seconds_since("2030-01-01T00:02:00Z", now) == 0
    assert read_time("") is read_time("yesterday") is None
