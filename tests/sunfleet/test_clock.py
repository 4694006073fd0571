"""Fleet time: real time, or real time made faster."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet.clock import REAL_TIME, TIMER_FLOOR, FleetClock

REAL = datetime(2026, 11, 2, 12, tzinfo=UTC)
FLEET = datetime(2026, 11, 2, 0, tzinfo=UTC)
FAST = FleetClock(real_origin=REAL, fleet_origin=FLEET, rate=300.0)
MICROSECOND = timedelta(microseconds=1)

rates = st.floats(0.01, 3_000)
spans = st.timedeltas(timedelta(days=-30), timedelta(days=30))


def test_at_rate_one_fleet_time_is_real_time() -> None:
    assert REAL_TIME.at(REAL) == REAL_TIME.real(REAL) == REAL
    assert REAL_TIME.real_duration(timedelta(hours=1)) == REAL_TIME.fleet_duration(timedelta(hours=1))


def test_a_business_day_passes_in_minutes() -> None:
    assert FAST.at(REAL + timedelta(minutes=2)) == FLEET + timedelta(hours=10)
    assert FAST.real(FLEET + timedelta(hours=24)) == REAL + timedelta(minutes=4, seconds=48)
    assert FAST.real_duration(timedelta(hours=1)) == timedelta(seconds=12)


def test_a_real_load_costs_a_compressed_day_hours() -> None:
    assert FAST.fleet_duration(timedelta(seconds=30)) == timedelta(hours=2.5)


def test_the_time_until_an_instant_is_real_and_never_below_what_a_timer_can_do() -> None:
    now = FLEET + timedelta(hours=8)
    assert FAST.until(now + timedelta(hours=1), now) == timedelta(seconds=12)
    assert FAST.until(now, now) == FAST.until(now - timedelta(hours=1), now) == TIMER_FLOOR


@pytest.mark.parametrize("rate", [0.0, -1.0, float("inf"), float("nan")])
def test_time_neither_stands_still_nor_runs_backwards(rate: float) -> None:
    with pytest.raises(ValueError, match="fleet time cannot pass"):
        FleetClock(rate=rate)


@given(rates, spans)
def test_there_and_back_again_is_the_same_instant(rate: float, span: timedelta) -> None:
    clock = FleetClock(real_origin=REAL, fleet_origin=FLEET, rate=rate)
    rounding = MICROSECOND * (2 + 1 / rate)
    assert abs(clock.real(clock.at(REAL + span)) - (REAL + span)) <= rounding


@given(rates, spans, spans)
def test_order_is_kept(rate: float, first: timedelta, second: timedelta) -> None:
    clock = FleetClock(real_origin=REAL, fleet_origin=FLEET, rate=rate)
    if first <= second:
        assert clock.at(REAL + first) <= clock.at(REAL + second)


@given(rates, spans, spans)
def test_waiting_the_real_time_until_an_instant_reaches_it(rate: float, start: timedelta, ahead: timedelta) -> None:
    clock = FleetClock(real_origin=REAL, fleet_origin=FLEET, rate=rate)
    real = REAL + start
    goal = clock.at(real) + abs(ahead)
    assert clock.at(real + clock.until(goal, clock.at(real))) >= goal - MICROSECOND * (2 + 2 * rate)
