"""Windows against the system's `zdump`: minute by minute around every clock change of many zones and years."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet import calendars
from sunfleet.model import Counts, PoolSpec, SiteSpec, WindowSpec
from sunfleet.warmth import active
from tests.sunfleet.zones import Change, changes, resolve

FIRST, LAST = 2025, 2029
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ZONES = (
    "America/Los_Angeles",
    "America/New_York",
    "America/Santiago",
    "America/St_Johns",
    "Africa/Casablanca",
    "Asia/Gaza",
    "Atlantic/Azores",
    "Australia/Lord_Howe",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Dublin",
    "Europe/London",
    "Pacific/Auckland",
    "Pacific/Chatham",
    "Antarctica/Troll",
)


def known(zone: str) -> tuple[Change, ...]:
    return changes(ZONES, FIRST, LAST)[zone]


def wall(change: Change) -> datetime:
    """What the clock shows just before a change, without a zone."""
    return (change.at + change.before).replace(tzinfo=None)


@pytest.mark.parametrize("zone", ZONES)
def test_every_minute_of_two_days_around_every_change_is_the_instant_that_zdump_says(zone: str) -> None:
    rows = known(zone)
    assert len(rows) >= 5
    for change in rows:
        start = wall(change) - DAY
        for n in range(2 * 24 * 60):
            at = start + n * MINUTE
            assert calendars.local_instant(at.date(), at.time(), zone) == resolve(at, rows), (zone, at)


def test_every_zone_there_is_changes_its_offset_when_zdump_says() -> None:
    found = changes(tuple(sorted(calendars.zones())), 2018, 2031)
    for zone, rows in found.items():
        for change in rows:
            assert calendars.local(change.at, zone).utcoffset() == change.after, (zone, change)
            assert calendars.local(change.at - timedelta(seconds=1), zone).utcoffset() == change.before, (zone, change)
    assert len(found) > 550
    assert sum(len(rows) for rows in found.values()) > 4000


def test_every_jump_there_was_is_read_by_the_two_rules() -> None:
    """The walls before, at, in and after each jump of 13 years, once for each way in which a zone moved."""
    found = changes(tuple(sorted(calendars.zones())), 2018, 2031)
    distinct = {rows: zone for zone, rows in found.items()}
    for rows, zone in distinct.items():
        for change in rows[1:-1]:
            jump = change.after - change.before
            for at in (wall(change), wall(change) + jump, wall(change) + jump / 2):
                for near in (at - MINUTE, at, at + MINUTE):
                    assert calendars.local_instant(near.date(), near.time(), zone) == resolve(near, rows), (zone, near)
    assert len(distinct) > 40


windows = st.builds(
    lambda days, start, minutes: WindowSpec(
        name="w", days=tuple(days), start=f"{start // 60:02d}:{start % 60:02d}", duration=minutes * MINUTE, hot=1
    ),
    st.sampled_from([["daily"], ["mon", "wed", "fri"], ["sat", "sun"], ["sun"]]),
    st.integers(0, 24 * 60 - 1),
    st.integers(1, 24 * 60),
)
moments = st.builds(
    lambda zone, which, minutes: (zone, known(zone)[1 + which % (len(known(zone)) - 2)].at + minutes * MINUTE),
    st.sampled_from(ZONES),
    st.integers(0, 99),
    st.integers(-2 * 24 * 60, 2 * 24 * 60),
)


def inside(window: WindowSpec, zone: str, instant: datetime) -> bool:
    """Membership by the rules alone, from zdump's changes: no zone data of ours."""
    start = time.fromisoformat(window.start)
    for n in range(-4, 3):
        day = (instant + n * DAY).date()
        opens = resolve(datetime.combine(day, start), known(zone))
        closes = resolve(datetime.combine(day, start) + window.duration, known(zone))
        if calendars.applies(window, day) and opens <= instant < closes:
            return True
    return False


@given(windows, moments)
@settings(max_examples=400)
def test_membership_is_what_the_rules_say_of_the_changes(window: WindowSpec, moment: tuple[str, datetime]) -> None:
    zone, instant = moment
    assert calendars.member(window, zone, instant) is inside(window, zone, instant)


@given(st.lists(windows, max_size=3), moments, st.integers(1, 50))
@settings(max_examples=100)
def test_every_instant_is_covered_once(
    given_windows: list[WindowSpec], moment: tuple[str, datetime], hours: int
) -> None:
    """A window claims exactly where it is open; `otherwise` exactly where no window is; nothing claims twice."""
    zone, start = moment
    named = tuple(
        WindowSpec(name=f"w{n}", days=w.days, start=w.start, duration=w.duration, hot=1)
        for n, w in enumerate(given_windows)
    )
    pool = PoolSpec(name="p", model="m", sites=("s",), windows=named, otherwise=Counts(hot=1))
    end = start + timedelta(hours=hours)
    found = calendars.expand(pool, SiteSpec(name="s", zone=zone), start, end, priority=1)
    for n in range(0, hours * 60, 13):
        at = start + n * MINUTE
        live = [c.source for c in found if active(c, at)]
        assert len(live) == len(set(live))
        within = [f"window/p/{w.name}" for w in named if calendars.member(w, zone, at)]
        assert sorted(live) == (sorted(within) or ["otherwise/p"])


@given(windows, moments)
@settings(max_examples=200)
def test_the_next_edge_is_later_and_nothing_changes_before_it(window: WindowSpec, moment: tuple[str, datetime]) -> None:
    zone, instant = moment
    found = calendars.next_edge(window, zone, instant)
    assert found is not None
    assert found > instant
    state = calendars.member(window, zone, instant)
    between = [instant + (found - instant) * n / 20 for n in range(20)]
    assert {calendars.member(window, zone, at) for at in between} == {state}
    assert found.tzinfo is UTC


@given(moments)
def test_the_wall_clock_never_runs_ahead_of_the_instants_it_names(moment: tuple[str, datetime]) -> None:
    """An instant that a wall-clock time names shows that time again, or the end of the gap it fell in."""
    zone, instant = moment
    shown = calendars.local(instant, zone)
    again = calendars.local_instant(shown.date(), shown.time(), zone)
    assert again <= instant
    assert calendars.local(again, zone).replace(tzinfo=None) == shown.replace(tzinfo=None)
