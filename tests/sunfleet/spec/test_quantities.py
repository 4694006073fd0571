"""Durations, sizes and rates: what they mean, and what is none."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet.spec.quantities import duration, rate, size, wall_clock


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("20m", 1200), ("11h", 39600), ("2h30m", 9000), ("1d", 86400), ("1.5h", 5400), ("0s", 0), (" 45s ", 45)],
)
def test_durations_are_read_largest_unit_first(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "20", "20 m", "h", "30m2h", "20m20m", "-1h", "1e9d", "367d", "9" * 400 + "d", "٣m", True, None, 5]
)
def test_what_is_no_duration_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"duration|year"):
        duration(text)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("12Ti", 12 * 2**40),
        ("900Gi", 900 * 2**30),
        ("80G", 80 * 10**9),
        ("1.5Ki", 1536),
        (123456789012, 123456789012),
        ("0", 0),
    ],
)
def test_sizes_are_bytes_in_binary_or_decimal_units(text: Any, found: int) -> None:
    assert size(text) == found


@pytest.mark.parametrize("text", ["12ti", "12TB", "-1Gi", "", "Gi", "9" * 400, True, [], 1e30])
def test_what_is_no_size_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="no size"):
        size(text)


@pytest.mark.parametrize(("text", "found"), [("10Gbit", 10**10), ("800Mbit", 8 * 10**8), ("2.5Gbit", 25 * 10**8)])
def test_rates_are_bits_per_second(text: str, found: int) -> None:
    assert rate(text) == found


@pytest.mark.parametrize("text", ["10G", "10Gb", "10GB/s", "0Gbit", "", 10])
def test_what_is_no_rate_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match=r"no rate|never end"):
        rate(text)


@given(st.integers(0, 23), st.integers(0, 59))
def test_every_minute_of_a_day_is_a_time(hour: int, minute: int) -> None:
    assert wall_clock(f"{hour:02d}:{minute:02d}") == f"{hour:02d}:{minute:02d}"


@pytest.mark.parametrize("text", ["8:00", "24:00", "08:60", "0800", "08:00:00", 480, "٠٨:٠٠"])
def test_what_is_no_time_of_day_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="no time of day"):
        wall_clock(text)
