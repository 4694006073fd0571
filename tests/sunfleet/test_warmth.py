"""Claims are floors, caps are ceilings, and the target is what follows at one instant."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sunfleet.warmth import RUNGS, Cap, Claim, Target, Warmth, active, capping, edges, target

NOON = datetime(2026, 11, 2, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def claim(warmth: Warmth, count: int, start: int = -1, end: int | None = 1, source: str = "window/p/day") -> Claim:
    """A claim from `start` to `end` hours after noon."""
    until = None if end is None else NOON + end * HOUR
    return Claim(source=source, warmth=warmth, count=count, ready_by=NOON + start * HOUR, expires_at=until)


def cap(warmth: Warmth, start: int = -1, end: int | None = 1, source: str = "unload/1") -> Cap:
    until = None if end is None else NOON + end * HOUR
    return Cap(source=source, warmth=warmth, since=NOON + start * HOUR, until=until)


def counts(of: Target) -> tuple[int, int, int]:
    return of.hot, of.asleep, of.staged


hours = st.integers(-6, 6)
claims = st.lists(
    st.builds(
        lambda source, warmth, count, start, length, minimum, priority: replace(
            claim(warmth, count, start, None if length is None else start + length, source),
            minimum=min(minimum, count) if warmth is Warmth.HOT else 0,
            priority=priority,
        ),
        st.sampled_from(["window/p/day", "otherwise/p", "prewarm/1", "pin/2"]),
        st.sampled_from(RUNGS),
        st.integers(0, 9),
        hours,
        st.none() | st.integers(0, 8),
        st.integers(0, 9),
        st.integers(0, 1000),
    ),
    max_size=6,
).map(tuple)
caps = st.lists(
    st.builds(
        lambda source, warmth, start, length: cap(warmth, start, None if length is None else start + length, source),
        st.sampled_from(["unload/1", "unload/2"]),
        st.sampled_from([Warmth.COLD, Warmth.STAGED, Warmth.ASLEEP, Warmth.HOT]),
        hours,
        st.none() | st.integers(0, 8),
    ),
    max_size=3,
).map(tuple)
instants = st.integers(-8 * 60, 8 * 60).map(lambda n: NOON + n * timedelta(minutes=1))


def test_hot_replicas_count_as_asleep_and_as_staged() -> None:
    both = (claim(Warmth.HOT, 2), claim(Warmth.STAGED, 4, source="otherwise/p"))
    assert counts(target(both, (), NOON)) == (2, 2, 4)
    assert counts(target((claim(Warmth.HOT, 4), claim(Warmth.STAGED, 2)), (), NOON)) == (4, 4, 4)


def test_claims_of_one_rung_compose_by_their_maximum_not_their_sum() -> None:
    found = target((claim(Warmth.HOT, 2), claim(Warmth.HOT, 3, source="prewarm/1")), (), NOON)
    assert (found.hot, found.because) == (3, "prewarm/1")


def test_a_claim_binds_from_its_opening_until_just_before_its_close() -> None:
    given_ = claim(Warmth.HOT, 1, 0, 1)
    tick = timedelta(microseconds=1)
    assert not active(given_, NOON - tick)
    assert active(given_, NOON)
    assert active(given_, NOON + HOUR - tick)
    assert not active(given_, NOON + HOUR)
    assert active(claim(Warmth.HOT, 1, 0, None), NOON + 10_000 * HOUR)


def test_a_cap_beats_every_claim_and_is_named() -> None:
    found = target((claim(Warmth.HOT, 2),), (cap(Warmth.STAGED),), NOON)
    assert (counts(found), found.capped_by, found.because) == ((0, 0, 2), "unload/1", "window/p/day")


def test_a_cap_that_nothing_reaches_is_not_named() -> None:
    """A claim of zero reaches nothing either."""
    for claims_ in ((claim(Warmth.STAGED, 2),), (claim(Warmth.HOT, 0), claim(Warmth.STAGED, 1)), ()):
        assert target(claims_, (cap(Warmth.STAGED),), NOON).capped_by == ""


def test_the_lowest_cap_in_force_counts() -> None:
    both = (cap(Warmth.ASLEEP, source="a"), cap(Warmth.COLD, source="b"), cap(Warmth.COLD, 1, 2, source="later"))
    found = capping(both, NOON)
    assert found is not None
    assert found.source == "b"
    assert counts(target((claim(Warmth.HOT, 2),), both, NOON)) == (0, 0, 0)


def test_a_minimum_is_of_hot_replicas_and_ends_with_them() -> None:
    given_ = replace(claim(Warmth.HOT, 4), minimum=2)
    assert target((given_,), (), NOON).minimum == 2
    assert target((given_,), (cap(Warmth.STAGED),), NOON).minimum == 0


def test_nothing_is_wanted_without_claims() -> None:
    assert target((), (), NOON) == Target()


@given(claims, caps, instants)
def test_counts_are_cumulative_and_never_negative(
    given_: tuple[Claim, ...], over: tuple[Cap, ...], at: datetime
) -> None:
    found = target(given_, over, at)
    ceiling = capping(over, at)
    assert found.hot >= 0
    assert 0 <= found.minimum <= found.hot
    if ceiling is None:
        assert found.hot <= found.asleep <= found.staged


@given(claims, claims, instants)
def test_the_target_of_two_sets_is_the_maximum_of_their_targets(
    first: tuple[Claim, ...], second: tuple[Claim, ...], at: datetime
) -> None:
    both, one, other = (target(s, (), at) for s in (first + second, first, second))
    for rung in RUNGS:
        assert both.count(rung) == max(one.count(rung), other.count(rung))
    assert both.priority == max(one.priority, other.priority)
    assert both.minimum >= max(one.minimum, other.minimum)


@given(claims, caps, claims, instants)
def test_one_more_claim_never_lowers_anything(
    given_: tuple[Claim, ...], over: tuple[Cap, ...], more: tuple[Claim, ...], at: datetime
) -> None:
    before, after = target(given_, over, at), target(given_ + more, over, at)
    assert all(after.count(rung) >= before.count(rung) for rung in RUNGS)
    assert after.minimum >= before.minimum


@given(claims, caps, caps, instants)
def test_one_more_cap_never_raises_anything(
    given_: tuple[Claim, ...], over: tuple[Cap, ...], more: tuple[Cap, ...], at: datetime
) -> None:
    before, after = target(given_, over, at), target(given_, over + more, at)
    assert all(after.count(rung) <= before.count(rung) for rung in RUNGS)


@given(claims, caps, instants)
def test_nothing_stands_above_the_cap_and_what_is_below_it_stays(
    given_: tuple[Claim, ...], over: tuple[Cap, ...], at: datetime
) -> None:
    found, free, ceiling = target(given_, over, at), target(given_, (), at), capping(over, at)
    for rung in RUNGS:
        above = ceiling is not None and rung.height > ceiling.warmth.height
        assert found.count(rung) == (0 if above else free.count(rung))


@given(claims, caps, instants, st.randoms(use_true_random=False))
def test_the_order_in_which_claims_came_says_nothing(
    given_: tuple[Claim, ...], over: tuple[Cap, ...], at: datetime, shuffled: object
) -> None:
    """Pure: the same claims and the same instant give the same answer, however they are listed."""
    mixed, lids = list(given_), list(over)
    shuffle = getattr(shuffled, "shuffle")  # noqa: B009  # hypothesis does not type its Random
    shuffle(mixed)
    shuffle(lids)
    assert target(tuple(mixed), tuple(lids), at) == target(given_, over, at)


@given(claims, caps)
def test_the_target_changes_only_at_edges_and_edges_are_ahead(given_: tuple[Claim, ...], over: tuple[Cap, ...]) -> None:
    start = NOON - 10 * HOUR
    found = edges(given_, over, start)
    assert list(found) == sorted(set(found))
    assert all(at > start for at in found)
    for first, second in pairwise((start, *found)):
        middle = first + (second - first) / 2
        assert target(given_, over, middle) == target(given_, over, first)


@given(claims)
def test_everything_but_pins_ends(given_: tuple[Claim, ...]) -> None:
    """Long after the last edge only what has no end is wanted."""
    late = NOON + 1000 * HOUR
    kept = tuple(c for c in given_ if c.expires_at is None)
    assert target(given_, (), late) == target(kept, (), late)
