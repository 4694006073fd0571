"""The week ahead says what the windows will ask, and loses to whom the ledger will."""

from __future__ import annotations

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sunfleet import calendars, spec, week
from sunfleet.inventory import Devices, Inventory, Node
from sunfleet.model import Counts, FleetSpec, PoolSpec, WindowSpec

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "follow-the-day.yaml"
FLEET = spec.parse(EXAMPLE.read_text(), str(EXAMPLE))
MONDAY = datetime(2026, 11, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
MARCH = datetime(2026, 3, 1, tzinfo=UTC)  # both clock changes lie in what follows
ZONES = ["Asia/Tokyo", "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kathmandu"]


def nodes(*gpus: int, foreign: int = 0, ready: bool = True) -> Inventory:
    return Inventory(
        nodes=tuple(
            Node(
                name=f"n{i}",
                uid=f"u{i}",
                ready=ready,
                devices=(
                    Devices(resource="nvidia.com/gpu", allocatable=count, foreign=foreign, product="NVIDIA-H200"),
                ),
            )
            for i, count in enumerate(gpus)
        )
    )


def course(found: week.Week, site: str, model: str) -> week.Course:
    return next(c for c in found.courses if (c.site, c.model) == (site, model))


def test_a_window_is_hot_in_its_hours_and_staged_outside() -> None:
    found = course(week.week(FLEET, MONDAY, MONDAY + DAY), "frankfurt", "chat-70b")
    assert [(s.start - MONDAY, s.end - MONDAY, s.hot, s.staged) for s in found.spans] == [
        (0 * HOUR, 8 * HOUR, 0, 1),
        (8 * HOUR, 16 * HOUR, 1, 1),
        (16 * HOUR, 24 * HOUR, 0, 1),
    ]
    assert found.openings == 1


def test_a_clock_change_moves_the_hours_and_is_named() -> None:
    """Oregon falls back on 1 November 2026 at 09:00 UTC: the window opens an hour later in UTC from then on."""
    start = datetime(2026, 10, 30, tzinfo=UTC)
    found = week.week(FLEET, start, start + 4 * DAY)
    assert [(c.zone, c.at, c.by) for c in found.changes] == [
        ("America/Los_Angeles", datetime(2026, 11, 1, 9, tzinfo=UTC), -HOUR)
    ]
    opens = [s.start for s in course(found, "oregon", "chat-8b").spans if s.hot and s.start > start]
    assert [o.hour for o in opens] == [15, 15, 16, 16]


def test_without_an_inventory_nothing_is_said_about_room() -> None:
    found = week.week(FLEET, MONDAY, MONDAY + DAY, {"tokyo": Inventory()})
    assert found.unknown == ("tokyo", "frankfurt", "oregon")
    assert found.shortages == ()
    assert all(s.granted is None for c in found.courses for s in c.spans)


def test_enough_room_is_no_conflict() -> None:
    found = week.week(FLEET, MONDAY, MONDAY + DAY, {"frankfurt": nodes(4)})
    assert found.shortages == ()
    assert all(s.granted == s.hot for s in course(found, "frankfurt", "chat-8b").spans)


def test_a_shortage_names_who_loses_when_and_what_would_lift_it() -> None:
    found = week.week(FLEET, MONDAY, MONDAY + DAY, {"frankfurt": nodes(2)})
    (short,) = found.shortages
    assert (short.start, short.end) == (MONDAY + 8 * HOUR, MONDAY + 16 * HOUR)
    assert (short.wanted, short.usable, short.nodes_missing) == (4, 2, 1)
    (loss,) = short.losses
    assert (loss.model, loss.wanted, loss.granted) == ("chat-70b", 1, 0)
    assert "frankfurt" in loss.why


def test_foreign_pods_and_nodes_that_are_not_ready_give_no_room() -> None:
    for room in (nodes(4, foreign=4), nodes(4, ready=False)):
        (short, *_) = week.week(FLEET, MONDAY, MONDAY + DAY, {"frankfurt": room}).shortages
        assert short.usable == 0
        assert short.losses


def test_what_no_number_of_nodes_lifts_has_no_fix_of_nodes() -> None:
    models = FLEET.models | {"chat-70b": replace(FLEET.models["chat-70b"], tensor=8)}
    found = week.week(replace(FLEET, models=models), MONDAY, MONDAY + DAY, {"frankfurt": nodes(4, 4)})
    assert [s.nodes_missing for s in found.shortages] == [None]


def test_one_model_in_two_pools_is_one_course_by_the_larger_wish() -> None:
    base = FLEET.pools["chat-8b"]
    more = replace(base, name="more", windows=(replace(base.windows[0], start="10:00", duration=2 * HOUR, hot=5),))
    fleet = replace(FLEET, pools=FLEET.pools | {"more": more})
    found = course(week.week(fleet, MONDAY, MONDAY + DAY), "frankfurt", "chat-8b")
    assert [(s.start - MONDAY, s.hot) for s in found.spans if s.hot] == [(7 * HOUR, 2), (9 * HOUR, 5), (11 * HOUR, 2)]


def test_costs_are_hours_times_gpus_times_price() -> None:
    (tokyo, *_) = week.week(FLEET, MONDAY, MONDAY + DAY).costs
    hot = 8 * 2 + 9 * 2 + 1 * 2  # chat-70b 00:00-08:00, chat-8b 00:00-09:00 and 23:00-24:00 UTC
    assert (tokyo.hot, tokyo.always_on) == (hot, 24 * 4)
    assert (float(tokyo.usd), float(tokyo.usd_always_on)) == pytest.approx((hot * 3.10, 96 * 3.10))


def test_a_plan_of_another_file_differs_where_and_only_where_it_differs() -> None:
    pool = FLEET.pools["chat-70b"]
    moved = replace(pool, windows=(replace(pool.windows[0], start="10:00"),))
    other = replace(FLEET, pools=FLEET.pools | {"chat-70b": moved})
    old, new = (week.week(f, MONDAY, MONDAY + DAY) for f in (FLEET, other))
    rows = week.differences(old, new)
    assert {r.model for r in rows} == {"chat-70b"}
    frankfurt = [(r.start - MONDAY, r.end - MONDAY, r.before, r.after) for r in rows if r.site == "frankfurt"]
    assert frankfurt == [
        (8 * HOUR, 9 * HOUR, (1, 1, 1), (0, 0, 1)),
        (16 * HOUR, 17 * HOUR, (0, 0, 1), (1, 1, 1)),
    ]
    assert week.differences(old, old) == ()


windows = st.builds(
    WindowSpec,
    name=st.just("w"),
    days=st.lists(st.sampled_from([*calendars.WEEKDAYS, "daily"]), min_size=1, max_size=3).map(tuple),
    start=st.sampled_from(["00:00", "02:30", "08:00", "22:15"]),
    duration=st.integers(1, 40).map(lambda n: n * timedelta(minutes=37)),
    hot=st.integers(0, 3),
    staged=st.integers(0, 4),
)


def _fleet(drawn: list[WindowSpec], zone: str) -> FleetSpec:
    pool = PoolSpec(name="p", model="chat-8b", sites=("tokyo",), windows=tuple(drawn), otherwise=Counts(staged=1))
    site = replace(FLEET.sites["tokyo"], zone=zone)
    return replace(FLEET, sites={"tokyo": site}, pools={"p": pool})


@given(
    drawn=st.lists(windows, min_size=1, max_size=3),
    zone=st.sampled_from(
        ["Asia/Tokyo", "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe", "Asia/Kathmandu"]
    ),
    start=st.integers(0, 264 * 24 * 60).map(lambda minutes: MARCH + timedelta(minutes=minutes)),
    gpus=st.lists(st.integers(0, 3), min_size=1, max_size=3),
)
@settings(max_examples=120)
def test_spans_cover_the_period_once_and_say_what_the_windows_say(
    drawn: list[WindowSpec], zone: str, start: datetime, gpus: list[int]
) -> None:
    end = start + 3 * DAY
    found = week.week(_fleet(drawn, zone), start, end, {"tokyo": nodes(*gpus)})
    (only,) = found.courses
    assert only.spans[0].start == start
    assert only.spans[-1].end == end
    assert all(a.end == b.start for a, b in itertools.pairwise(only.spans))
    for span in only.spans:
        for at in (span.start, span.start + (span.end - span.start) / 2):
            inside = [w for w in drawn if calendars.member(w, zone, at)]
            assert span.hot == max((w.hot for w in inside), default=0)
        assert span.granted == min(span.hot, sum(gpus)), "one GPU each: the site gives what it has"
    short = sum(((s.end - s.start) for s in only.spans if s.short), timedelta(0))
    assert sum(((s.end - s.start) for s in found.shortages), timedelta(0)) == short
