"""Windows in a zone: every strange night that people have reported, and the rules that answer them."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import pairwise

import pytest

from sunfleet import calendars
from sunfleet.model import Counts, PoolSpec, SiteSpec, WindowSpec
from sunfleet.warmth import Claim, Warmth, target

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri")


def utc(text: str) -> datetime:
    """An instant from `2026-10-25T01:00`, UTC unless it says otherwise."""
    found = datetime.fromisoformat(text)
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def window(
    start: str, hours: float, days: tuple[str, ...] = ("daily",), *, hot: int = 1, minimum: int = 0, staged: int = 0
) -> WindowSpec:
    length = timedelta(hours=hours)
    return WindowSpec(name="day", days=days, start=start, duration=length, hot=hot, minimum=minimum, staged=staged)


def opens(given: WindowSpec, zone: str, start: str, end: str) -> list[datetime]:
    """Openings that lie in [start, end)."""
    first, last = utc(start), utc(end)
    return [o.opens for o in calendars.openings(given, zone, first, last) if first <= o.opens < last]


def shown(instants: list[datetime], zone: str) -> list[str]:
    return [calendars.local(i, zone).strftime("%m-%dT%H:%M%z") for i in instants]


# Missing and repeated local times.


@pytest.mark.parametrize(
    ("zone", "day", "at", "instant"),
    [
        ("Europe/Berlin", "2026-10-25", "02:00", "2026-10-25T00:00"),  # twice: the first
        ("Europe/Berlin", "2027-10-31", "02:00", "2027-10-31T00:00"),
        ("America/New_York", "2027-11-07", "01:30", "2027-11-07T05:30"),
        ("Europe/Berlin", "2027-03-28", "02:30", "2027-03-28T01:00"),  # missing: 03:00, the first valid instant
        ("Europe/Berlin", "2027-03-28", "02:00", "2027-03-28T01:00"),
        ("Europe/Berlin", "2027-03-28", "02:59", "2027-03-28T01:00"),
        ("Europe/Berlin", "2027-03-28", "01:59", "2027-03-28T00:59"),
        ("America/Santiago", "2027-09-05", "00:00", "2027-09-05T04:00"),  # midnight itself is missing
        ("America/Santiago", "2026-04-04", "23:00", "2026-04-05T02:00"),  # 23:00 comes twice
        ("Australia/Lord_Howe", "2026-10-04", "02:15", "2026-10-03T15:30"),  # half an hour is missing
        ("Australia/Lord_Howe", "2026-04-05", "01:45", "2026-04-04T14:45"),  # half an hour comes twice
        ("Pacific/Apia", "2011-12-30", "08:00", "2011-12-30T10:00"),  # a whole date is missing
        ("Pacific/Apia", "2011-12-31", "00:00", "2011-12-30T10:00"),
        ("Pacific/Apia", "2011-12-29", "23:59", "2011-12-30T09:59"),
        ("Asia/Kolkata", "2026-03-29", "02:30", "2026-03-28T21:00"),
        ("Asia/Kathmandu", "2026-03-29", "02:30", "2026-03-28T20:45"),
    ],
)
def test_a_missing_time_is_the_first_valid_instant_and_a_repeated_one_its_first(
    zone: str, day: str, at: str, instant: str
) -> None:
    assert calendars.local_instant(date.fromisoformat(day), time.fromisoformat(at), zone) == utc(instant)


def test_a_repeated_hour_opens_once() -> None:
    """A daily 02:00 in Berlin opens once in the night in which 02:00 comes twice."""
    found = opens(window("02:00", 1), "Europe/Berlin", "2026-10-24T12:00", "2026-10-26T12:00")
    assert shown(found, "Europe/Berlin") == ["10-25T02:00+0200", "10-26T02:00+0100"]


def test_a_missing_midnight_loses_no_day() -> None:
    """A daily midnight in Santiago opens on the date that has no midnight, too."""
    found = opens(window("00:00", 12), "America/Santiago", "2027-09-04T00:00", "2027-09-07T00:00")
    assert shown(found, "America/Santiago") == ["09-04T00:00-0400", "09-05T01:00-0300", "09-06T00:00-0300"]


def test_a_date_that_a_zone_skipped_has_no_window_and_the_next_has_its_own() -> None:
    found = opens(window("08:00", 11), "Pacific/Apia", "2011-12-29T00:00", "2012-01-01T12:00")
    assert shown(found, "Pacific/Apia") == ["12-29T08:00-1000", "12-31T08:00+1400", "01-01T08:00+1400"]


def test_a_window_wholly_in_a_gap_does_not_open_on_that_date() -> None:
    found = opens(window("02:10", 1 / 3), "Europe/Berlin", "2027-03-27T00:00", "2027-03-30T00:00")
    assert shown(found, "Europe/Berlin") == ["03-27T02:10+0100", "03-29T02:10+0200"]


# A window closes by the wall clock.


@pytest.mark.parametrize(
    ("start", "hours", "on", "closes", "elapsed"),
    [
        ("08:00", 11, "2026-10-25", "10-25T19:00+0100", 11),
        ("22:00", 8, "2026-10-24", "10-25T06:00+0100", 9),  # the clock went back within
        ("22:00", 8, "2026-03-28", "03-29T06:00+0200", 7),  # and forward
        ("22:00", 4.5, "2026-03-28", "03-29T03:00+0200", 4),  # its closing, 02:30, is missing
        ("22:00", 4.5, "2026-10-24", "10-25T02:30+0200", 4.5),  # its closing, 02:30, comes twice
        ("02:30", 1, "2026-03-29", "03-29T03:30+0200", 0.5),  # its opening is missing
        ("00:00", 24, "2026-10-25", "10-26T00:00+0100", 25),
    ],
)
def test_a_window_closes_at_its_wall_clock_time_across_a_clock_change(
    start: str, hours: float, on: str, closes: str, elapsed: float
) -> None:
    found = calendars.opening(window(start, hours), date.fromisoformat(on), "Europe/Berlin")
    assert shown([found.closes], "Europe/Berlin") == [closes]
    assert found.closes - found.opens == timedelta(hours=elapsed)


def test_a_friday_window_closes_on_friday() -> None:
    """One rule has one set of dates for both of its edges: 06:30 to 22:10, Monday to Friday, in Prague."""
    given = window("06:30", 15 + 40 / 60, WEEKDAYS)
    week = list(calendars.openings(given, "Europe/Prague", utc("2026-06-01T00:00"), utc("2026-06-08T00:00")))
    assert [(o.on.isoformat(), *shown([o.opens, o.closes], "Europe/Prague")) for o in week[-1:]] == [
        ("2026-06-05", "06-05T06:30+0200", "06-05T22:10+0200")
    ]
    assert len(week) == 5
    assert not calendars.member(given, "Europe/Prague", utc("2026-06-06T12:00"))


def test_a_window_over_midnight_belongs_to_the_date_on_which_it_opens() -> None:
    given = window("22:00", 8, ("sun",))
    assert calendars.member(given, "Asia/Tokyo", utc("2026-06-07T15:30"))  # Monday 00:30
    assert not calendars.member(given, "Asia/Tokyo", utc("2026-06-06T15:30"))  # Sunday 00:30


def test_back_to_back_days_leave_no_hole_and_no_overlap_over_any_change() -> None:
    """24 hours from midnight on every date cover each instant once, through a missing midnight too."""
    found = list(
        calendars.openings(window("00:00", 24), "America/Santiago", utc("2026-01-01T00:00"), utc("2028-01-01T00:00"))
    )
    assert all(a.closes == b.opens for a, b in pairwise(found))


# Stepping.


@pytest.mark.parametrize("at", ["07:00", "08:00"])
def test_the_local_time_is_the_same_on_both_sides_of_a_change(at: str) -> None:
    found = opens(window(at, 1), "America/Los_Angeles", "2020-03-06T00:00", "2020-03-12T00:00")
    assert [s[6:11] for s in shown(found, "America/Los_Angeles")] == [at] * 6


def test_the_second_opening_after_a_change_keeps_its_hour() -> None:
    given = window("20:00", 1)
    first = calendars.next_opening(given, "Europe/Paris", utc("2022-10-30T00:00+02:00"))
    assert first is not None
    second = calendars.next_opening(given, "Europe/Paris", first)
    assert second is not None
    assert shown([first, second], "Europe/Paris") == ["10-30T20:00+0100", "10-31T20:00+0100"]


def test_a_weekly_window_opens_once_in_every_week() -> None:
    found = opens(window("08:00", 1, ("mon",)), "Europe/Amsterdam", "2026-01-01T00:00", "2028-01-01T00:00")
    local = [calendars.local(i, "Europe/Amsterdam") for i in found]
    assert len({d.isocalendar()[:2] for d in local}) == len(local) == 104
    assert {(d.weekday(), d.hour, d.minute) for d in local} == {(0, 8, 0)}


def test_a_sunday_of_23_hours_is_not_skipped() -> None:
    found = calendars.next_opening(window("12:00", 1, ("sun",)), "Europe/Berlin", utc("2022-03-24T00:00"))
    assert found == utc("2022-03-27T10:00")


def test_a_day_may_have_23_hours() -> None:
    first, second = opens(window("17:00", 1), "America/New_York", "2016-03-12T00:00", "2016-03-14T00:00")
    assert second - first == 23 * HOUR
    assert shown([first, second], "America/New_York") == ["03-12T17:00-0500", "03-13T17:00-0400"]


@pytest.mark.parametrize("zone", ["Europe/Brussels", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"])
def test_the_next_edge_is_always_later(zone: str) -> None:
    """Walking over a year of quarter hours never comes back to an instant it has left."""
    quarters = [window(f"{h:02d}:{m:02d}", 0.25) for h in (0, 1, 2, 3, 23) for m in (0, 15, 30, 45)]
    for given in quarters:
        at = utc("2026-01-01T00:00")
        for _ in range(60):
            found = calendars.next_edge(given, zone, at)
            assert found is not None
            assert found > at
            at = found + 6 * DAY


def test_there_is_no_next_edge_of_what_never_changes_or_is_past() -> None:
    always = WindowSpec(name="always", always=True, hot=1)
    past = window("08:00", 1, ("2020-01-01",))
    for given in (always, past):
        assert calendars.next_edge(given, "Asia/Tokyo", utc("2026-01-01T00:00")) is None
        assert calendars.next_opening(given, "Asia/Tokyo", utc("2026-01-01T00:00")) is None
    assert calendars.member(always, "Asia/Tokyo", utc("2026-01-01T00:00"))


def test_membership_is_a_function_of_the_instant_and_half_open() -> None:
    """The same instant gives the same answer, a thousand times; the opening is in, the closing is out."""
    given = window("12:30", 29 / 60)
    at = utc("2026-06-01T12:30")
    assert {calendars.member(given, "UTC", at) for _ in range(1000)} == {True}
    assert not calendars.member(given, "UTC", at - timedelta(microseconds=1))
    assert calendars.member(given, "UTC", at + 29 * timedelta(minutes=1) - timedelta(microseconds=1))
    assert not calendars.member(given, "UTC", at + 29 * timedelta(minutes=1))


# Zones.


@pytest.mark.parametrize("name", ["Asia/Tokyo", "Europe/Kyiv", "Europe/Kiev", "UTC", "Etc/GMT+3", "US/Pacific"])
def test_iana_names_and_their_links_are_zones(name: str) -> None:
    assert calendars.is_zone(name)


@pytest.mark.parametrize(
    "name",
    ["", "local", "localtime", "Mars/Base", "UTC+3", "posixrules", "Factory", "posix/UTC", "right/UTC", "../UTC"],
)  # fmt: skip
def test_what_is_no_iana_name_is_no_zone(name: str) -> None:
    assert not calendars.is_zone(name)
    with pytest.raises(ValueError, match="no IANA time zone"):
        calendars.local(utc("2026-01-01T00:00"), name)


def test_the_version_of_the_zone_data_is_known() -> None:
    assert calendars.tzdata_version()[:4].isdigit()


def test_the_date_line_lies_between_two_sites() -> None:
    """The same local Monday 08:00 is 25 hours apart."""
    west = calendars.local_instant(date(2026, 6, 1), time(8), "Pacific/Kiritimati")
    east = calendars.local_instant(date(2026, 6, 1), time(8), "Pacific/Pago_Pago")
    assert east - west == 25 * HOUR


_CHANGES = """
America/Los_Angeles 2026-03-08T10:00 03:00-0700 2026-11-01T09:00 01:00-0800 2027-03-14T10:00 03:00-0700 2027-11-07T09:00 01:00-0800
America/New_York    2026-03-08T07:00 03:00-0400 2026-11-01T06:00 01:00-0500 2027-03-14T07:00 03:00-0400 2027-11-07T06:00 01:00-0500
Europe/Berlin       2026-03-29T01:00 03:00+0200 2026-10-25T01:00 02:00+0100 2027-03-28T01:00 03:00+0200 2027-10-31T01:00 02:00+0100
Europe/London       2026-03-29T01:00 02:00+0100 2026-10-25T01:00 01:00+0000 2027-03-28T01:00 02:00+0100 2027-10-31T01:00 01:00+0000
Australia/Sydney    2026-04-04T16:00 02:00+1000 2026-10-03T16:00 03:00+1100 2027-04-03T16:00 02:00+1000 2027-10-02T16:00 03:00+1100
Australia/Lord_Howe 2026-04-04T15:00 01:30+1030 2026-10-03T15:30 02:30+1100 2027-04-03T15:00 01:30+1030 2027-10-02T15:30 02:30+1100
America/Santiago    2026-04-05T03:00 23:00-0400 2026-09-06T04:00 01:00-0300 2027-04-04T03:00 23:00-0400 2027-09-05T04:00 01:00-0300
Africa/Casablanca   2026-02-15T02:00 02:00+0000 2026-03-22T02:00 03:00+0100 2026-09-20T01:00 01:00+0000
"""  # noqa: E501


def changes() -> Iterator[tuple[str, str, str]]:
    for line in _CHANGES.strip().splitlines():
        zone, *rest = line.split()
        for at, after in zip(rest[::2], rest[1::2], strict=True):
            yield zone, at, after


@pytest.mark.parametrize(("zone", "at", "after"), list(changes()))
def test_the_clock_changes_at_the_known_instant(zone: str, at: str, after: str) -> None:
    """The first instant of the new offset, and what the clock shows then."""
    instant = utc(at)
    assert calendars.local(instant, zone).strftime("%H:%M%z") == after
    before = calendars.local(instant - timedelta(seconds=1), zone)
    assert before.utcoffset() != calendars.local(instant, zone).utcoffset()


@pytest.mark.parametrize(
    ("zone", "offset"),
    [
        ("Asia/Kolkata", "+0530"),
        ("Asia/Kathmandu", "+0545"),
        ("Asia/Singapore", "+0800"),
        ("America/Sao_Paulo", "-0300"),
        ("Pacific/Apia", "+1300"),
    ],
)
def test_a_zone_without_changes_has_one_offset(zone: str, offset: str) -> None:
    days = (utc("2026-01-01T00:00") + n * DAY for n in range(730))
    assert {calendars.local(d, zone).strftime("%z") for d in days} == {offset}


def test_a_zone_that_gave_up_changing_is_followed_without_a_change_of_ours() -> None:
    """Morocco moved for each Ramadan until September 2026, and stays at one offset since."""
    days = (utc("2026-09-21T00:00") + n * DAY for n in range(730))
    assert {calendars.local(d, "Africa/Casablanca").strftime("%z") for d in days} == {"+0000"}


def test_two_sites_are_nearer_in_the_weeks_between_their_changes() -> None:
    """New York and Berlin are five hours apart, instead of six, in the weeks between their clock changes."""
    nine = window("09:00", 1)
    berlin = opens(nine, "Europe/Berlin", "2026-01-01T12:00", "2026-12-31T00:00")
    york = opens(nine, "America/New_York", "2026-01-02T12:00", "2027-01-01T00:00")
    by_date = {calendars.local(i, "America/New_York").date(): i for i in york}
    near = []
    for at in berlin:
        on = calendars.local(at, "Europe/Berlin").date()
        if on in by_date and by_date[on] - at == 5 * HOUR:
            near.append(on)
    assert near == [date(2026, 3, 8) + n * DAY for n in range(21)] + [date(2026, 10, 25) + n * DAY for n in range(7)]


# Claims.

SITE = SiteSpec(name="berlin", zone="Europe/Berlin")
POOL = PoolSpec(
    name="chat",
    model="m",
    sites=("berlin",),
    windows=(window("08:00", 11, WEEKDAYS, hot=4, minimum=2, staged=5),),
    otherwise=Counts(staged=1),
)


def claims(pool: PoolSpec, start: str, hours: int = 48, site: SiteSpec = SITE) -> tuple[Claim, ...]:
    first = utc(start)
    return calendars.expand(pool, site, first, first + hours * HOUR, priority=300)


def test_a_window_becomes_whole_claims_on_each_rung_it_names() -> None:
    found = [c for c in claims(POOL, "2026-11-02T12:00", 1) if c.source == "window/chat/day"]
    assert [(c.warmth, c.count, c.minimum, c.priority) for c in found] == [
        (Warmth.HOT, 4, 2, 300),
        (Warmth.STAGED, 5, 0, 300),
    ]
    assert {(c.ready_by, c.expires_at) for c in found} == {(utc("2026-11-02T07:00"), utc("2026-11-02T18:00"))}


def test_openings_ahead_are_known_before_they_begin() -> None:
    found = [c for c in claims(POOL, "2026-11-02T20:00") if c.warmth is Warmth.HOT]
    assert [c.ready_by for c in found] == [utc("2026-11-03T07:00"), utc("2026-11-04T07:00")]


def test_otherwise_holds_exactly_outside_every_window() -> None:
    found = [c for c in claims(POOL, "2026-11-06T12:00", 72) if c.source == "otherwise/chat"]
    assert [(c.ready_by, c.expires_at) for c in found] == [(utc("2026-11-06T18:00"), utc("2026-11-09T07:00"))]


def test_a_window_of_zero_counts_ends_what_holds_otherwise() -> None:
    """An explicit zero is a value: nothing is claimed inside, and otherwise does not reach in."""
    pool = PoolSpec(
        name="p", model="m", sites=("berlin",), windows=(window("08:00", 11, hot=0),), otherwise=Counts(staged=1)
    )
    assert target(claims(pool, "2026-11-02T12:00"), (), utc("2026-11-02T12:00")).staged == 0
    assert target(claims(pool, "2026-11-02T12:00"), (), utc("2026-11-02T20:00")).staged == 1


def test_an_always_window_covers_every_instant_and_leaves_nothing_to_otherwise() -> None:
    always = WindowSpec(name="always", always=True, hot=2, minimum=2)
    pool = PoolSpec(name="p", model="m", sites=("berlin",), windows=(always,), otherwise=Counts(staged=9))
    found = claims(pool, "2026-10-24T12:00", 72)
    assert {c.source for c in found} == {"window/p/always"}
    assert all(target(found, (), utc("2026-10-24T12:00") + n * HOUR).hot == 2 for n in range(72))


def test_a_pool_without_windows_has_its_otherwise_always() -> None:
    pool = PoolSpec(name="p", model="m", sites=("berlin",), otherwise=Counts(hot=1, staged=2))
    found = claims(pool, "2026-11-02T12:00")
    assert [(c.warmth, c.count, c.minimum) for c in found] == [(Warmth.HOT, 1, 1), (Warmth.STAGED, 2, 0)]


def test_looking_again_on_the_same_day_gives_the_same_claims() -> None:
    """Nothing in a claim depends on when one looks, so that an equal look costs nothing."""
    always = WindowSpec(name="always", always=True, hot=1)
    for pool in (POOL, PoolSpec(name="p", model="m", sites=("berlin",), windows=(always,))):
        assert claims(pool, "2026-11-07T09:00") == claims(pool, "2026-11-07T10:37")


def test_after_any_downtime_one_look_says_what_holds_now() -> None:
    """No missed edge is replayed: what holds at an instant does not depend on when it was last asked."""
    now = utc("2026-11-04T10:00")
    fresh = target(claims(POOL, "2026-11-04T10:00"), (), now)
    assert fresh.hot == 4
    for hours in (1, 2, 47):
        earlier = calendars.expand(POOL, SITE, now - hours * HOUR, now + (48 - hours) * HOUR, priority=300)
        assert target(earlier, (), now) == fresh


# Edges for Schedules.


def edges(*windows: WindowSpec) -> list[tuple[str, str, tuple[int, ...]]]:
    found = calendars.edges(PoolSpec(name="p", model="m", sites=("berlin",), windows=windows), SITE)
    return [(e.zone, f"{e.hour:02d}:{e.minute:02d}", e.weekdays) for e in found]


def test_edges_are_local_and_a_closing_may_fall_on_the_next_weekday() -> None:
    assert edges(window("22:00", 8, ("fri", "sun"))) == [
        ("Europe/Berlin", "06:00", (0, 5)),
        ("Europe/Berlin", "22:00", (4, 6)),
    ]


def test_edges_of_several_windows_at_one_time_are_one() -> None:
    assert edges(window("08:00", 4, ("mon",)), window("12:00", 4, ("mon", "tue"))) == [
        ("Europe/Berlin", "08:00", (0,)),
        ("Europe/Berlin", "12:00", (0, 1)),
        ("Europe/Berlin", "16:00", (0, 1)),
    ]


def test_what_is_always_or_on_single_dates_has_no_weekly_edge() -> None:
    assert edges(WindowSpec(name="always", always=True, hot=1), window("08:00", 1, ("2026-12-24",))) == []
