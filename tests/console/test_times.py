"""Times as people write them: the site's wall clock, across clock changes, always the one that is meant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console import times
from sunfleet import calendars
from sunfleet.errors import BadInput

NOW = datetime(2026, 11, 2, 6, 41, tzinfo=UTC)
BERLIN = "Europe/Berlin"
ZONES = ("Asia/Tokyo", BERLIN, "America/Los_Angeles", "Australia/Lord_Howe", "Pacific/Apia", "Asia/Kolkata")
BOUNDS = (datetime(2025, 1, 1), datetime(2029, 1, 1))  # noqa: DTZ001  # hypothesis takes naive bounds
INSTANTS = st.datetimes(*BOUNDS, timezones=st.just(UTC))
CLOCKS = st.times().map(lambda t: f"{t:%H:%M}")


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("08:00", "2026-11-02T07:00"),
        ("7:41", "2026-11-03T06:41"),  # now is not ahead
        ("wed 09:05", "2026-11-04T08:05"),
        ("MON 07:00", "2026-11-09T06:00"),
        ("2026-11-02T08:00:00Z", "2026-11-02T08:00"),
        ("2026-11-02T08:00:00+09:00", "2026-11-01T23:00"),
        ("2026-11-05T06:00", "2026-11-05T05:00"),  # without a zone: the site's
    ],
)
def test_a_deadline_is_the_next_such_time_at_the_site(text: str, meant: str) -> None:
    assert times.ahead(text, BERLIN, NOW) == at(meant)


@pytest.mark.parametrize(
    ("text", "meant"),
    [("08:00", "2026-11-01T07:00"), ("07:41", "2026-11-02T06:41"), ("fri 09:05", "2026-10-30T08:05")],
)
def test_a_look_back_is_the_last_such_time_at_the_site(text: str, meant: str) -> None:
    assert times.back(text, BERLIN, NOW) == at(meant)


def test_a_time_that_the_clock_change_skips_is_the_first_valid_instant() -> None:
    """02:30 does not exist on 29 March 2026 in Berlin."""
    assert times.ahead("02:30", BERLIN, at("2026-03-29T00:30")) == at("2026-03-29T01:00")


@given(INSTANTS, CLOCKS, st.sampled_from(ZONES))
def test_a_deadline_is_ahead_and_a_look_back_is_not(now: datetime, text: str, zone: str) -> None:
    assert now < times.ahead(text, zone, now) <= now + timedelta(hours=50)
    assert now - timedelta(hours=50) <= times.back(text, zone, now) <= now


@given(INSTANTS, st.sampled_from(times.DAYS), st.sampled_from(ZONES))
def test_a_weekday_is_the_sites_own(now: datetime, day: str, zone: str) -> None:
    found = calendars.local(times.ahead(f"{day} 12:00", zone, now), zone)
    assert times.DAYS[found.weekday()] == day
    assert found.hour == 12


@pytest.mark.parametrize("text", ["", "soon", "25:00", "08:60", "8", "2026-13-01T00:00Z", "xyz 08:00"])
def test_what_is_no_time_is_bad_input_with_a_hint(text: str) -> None:
    with pytest.raises(BadInput) as error:
        times.ahead(text, BERLIN, NOW, field="--by")
    assert error.value.problems[0].path == "--by"
    assert error.value.problems[0].hint


@pytest.mark.parametrize(("text", "length"), [("45m", 45), ("2h", 120), ("1d12h", 2160), ("2h30m", 150)])
def test_durations_are_read(text: str, length: int) -> None:
    assert times.span(text) == timedelta(minutes=length)


@pytest.mark.parametrize("text", ["", "2", "soon", "-2h", "0m", "2 hours"])
def test_what_is_no_duration_is_bad_input(text: str) -> None:
    with pytest.raises(BadInput):
        times.span(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(40, "40 s"), (740, "12 min"), (-740, "12 min"), (7500, "2 h 5 min"), (7200, "2 h"), (259200, "3 days")],
)
def test_lengths_are_said_in_one_unit_or_two(seconds: int, text: str) -> None:
    assert times.words(timedelta(seconds=seconds)) == text
