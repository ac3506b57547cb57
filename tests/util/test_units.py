"""Amounts as people write them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from ditk_ray.util.units import parse_bytes, parse_seconds, show_bytes, show_seconds


@pytest.mark.parametrize(
    ("written", "amount"),
    [
        ("4G", 4 * 1024**3),
        ("4g", 4 * 1024**3),
        ("4 GiB", 4 * 1024**3),
        ("4GB", 4 * 1024**3),
        ("512M", 512 * 1024**2),
        ("1.5k", 1536),
        ("1T", 1024**4),
        ("100", 100),
        ("100B", 100),
        (100, 100),
        (4e9, 4_000_000_000),
        (0, 0),
    ],
)
def test_memory_is_read_with_or_without_a_unit(written, amount):
    assert parse_bytes(written) == amount


@pytest.mark.parametrize("written", ["", "G", "four", "-1G", -5, "4X", "4 G B", None, True, "nan"])
def test_what_is_no_amount_of_memory_is_refused(written):
    with pytest.raises(ValueError, match="not a memory size; write it like '4G'"):
        parse_bytes(written)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (90, 90),
        (0.5, 0.5),
        ("90", 90),
        ("45s", 45),
        ("30m", 1800),
        ("2h", 7200),
        ("1.5 H", 5400),
        ("1d", 86400),
        (timedelta(minutes=3), 180),
    ],
)
def test_time_is_read_as_seconds(written, seconds):
    assert parse_seconds(written) == seconds


@pytest.mark.parametrize("written", ["", "h", "two hours", "-5m", -5, "1h30", None, "5w", True])
def test_what_is_no_length_of_time_is_refused(written):
    with pytest.raises(ValueError, match="not a length of time; write it like 90, '30m' or '2h'"):
        parse_seconds(written)


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (512, "512 B"),
        (1536, "1.5 KiB"),
        (3 * 1024**2, "3 MiB"),
        (4 * 1024**3, "4 GiB"),
        (2 * 1024**4, "2048 GiB"),
        (1000 * 1024**2, "1000 MiB"),
    ],
)
def test_memory_is_shown_with_a_fitting_unit(amount, text):
    assert show_bytes(amount) == text


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.0s"),
        (2.34, "2.3s"),
        (42, "42s"),
        (59.7, "1m00s"),
        (90, "1m30s"),
        (3600, "1h00m"),
        (7384, "2h03m"),
    ],
)
def test_time_is_shown_in_at_most_two_units(amount, text):
    assert show_seconds(amount) == text
