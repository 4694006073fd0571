"""Requests of people and clients: each has an end, and none piles up."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sunfleet import standing, wishes
from sunfleet.messages import DeploymentState, Pause, Pin, Prewarm, Unload
from sunfleet.warmth import Claim, Warmth

NOW = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)


def state(*claims: Claim) -> DeploymentState:
    found = DeploymentState()
    found.own_claims = list(claims)
    return found


def prewarm(id: str = "p", count: int = 1, ready_by: datetime | None = None) -> Prewarm:
    return Prewarm(request_id=id, author="ana", count=count, ready_by=ready_by, duration=HOUR)


def wanted(found: DeploymentState, at: datetime) -> int:
    return standing.present(standing.claims_of(found), tuple(found.caps), at).hot


def test_a_prewarm_holds_from_its_time_for_its_length() -> None:
    found = state()
    wishes.prewarm(found, prewarm(ready_by=NOW + HOUR), NOW)
    assert [wanted(found, NOW + h * HOUR) for h in (0, 1, 1.5, 2)] == [0, 1, 1, 0]


def test_a_ready_by_that_has_passed_means_now() -> None:
    found = state()
    wishes.prewarm(found, prewarm(ready_by=NOW - 5 * HOUR), NOW)
    assert (wanted(found, NOW), wanted(found, NOW + HOUR)) == (1, 0)


@given(st.integers(1, 300))
def test_equal_prewarms_are_one_claim(count: int) -> None:
    found = state()
    for index in range(count):
        wishes.prewarm(found, prewarm(f"p{index}"), NOW)
    assert len(found.own_claims) == 1


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 72)), max_size=150))
def test_claims_never_pile_up_beyond_the_limit(asked: list[tuple[int, int]]) -> None:
    found = state()
    for index, (count, hours) in enumerate(asked):
        wishes.prewarm(found, prewarm(f"p{index}", count, NOW + hours * HOUR), NOW)
    assert len(found.own_claims) <= wishes.LIMIT
    live = [c for c, hours in asked if hours == 0]
    assert wanted(found, NOW) >= max(live, default=0)


def test_a_pin_stays_until_it_is_unpinned() -> None:
    found = state()
    wishes.pin(found, Pin(request_id="a", author="ana", count=2), NOW)
    wishes.pin(found, Pin(request_id="b", author="bo", count=3), NOW)
    wishes.expire(found, NOW + 10_000 * HOUR)
    assert wishes.pinned(found, "b")
    wishes.unpin(found, "b")
    assert not wishes.pinned(found, "b")
    assert wanted(found, NOW) == 2


def test_unpin_without_a_name_ends_every_pin_and_nothing_else() -> None:
    found = state()
    wishes.floor(found, 1, NOW)
    wishes.pin(found, Pin(request_id="a", author="ana", count=2), NOW)
    wishes.unpin(found, None)
    assert [c.source for c in found.own_claims] == ["spec"]


def test_an_unload_without_an_end_lasts_until_the_next_opening() -> None:
    found = state()
    wishes.prewarm(found, prewarm(ready_by=NOW + 3 * HOUR), NOW)
    until = wishes.unload(found, Unload(request_id="u", author="ana"), NOW)
    assert until == NOW + 3 * HOUR
    assert [c.source for c in found.caps] == ["unload/u"]


def test_with_nothing_ahead_an_unload_lasts_until_resumed() -> None:
    found = state()
    wishes.pin(found, Pin(request_id="a", author="ana", count=1), NOW)
    assert wishes.unload(found, Unload(request_id="u", author="ana"), NOW) is None
    assert wanted(found, NOW + 100 * HOUR) == 0
    wishes.resume(found)
    assert wanted(found, NOW) == 1


def test_a_resume_leaves_an_unload_its_own_end() -> None:
    found = state()
    wishes.unload(found, Unload(request_id="u", author="ana", until=NOW + HOUR), NOW)
    wishes.resume(found)
    assert [c.until for c in found.caps] == [NOW + HOUR]
    wishes.expire(found, NOW + HOUR)
    assert found.caps == []


def test_a_pause_keeps_what_is_wanted_now_and_ends_by_itself() -> None:
    found = state()
    wishes.prewarm(found, prewarm(count=2), NOW)
    wishes.pause(found, Pause(request_id="p", author="ana", until=NOW + 2 * HOUR), NOW)
    wishes.expire(found, NOW + 1.5 * HOUR)
    assert found.frozen is not None
    assert found.frozen.hot == 2
    wishes.expire(found, NOW + 2 * HOUR)
    ended: tuple[object, object] = (found.frozen, found.paused_until)
    assert ended == (None, None)


def test_the_floor_of_an_object_is_replaced_and_zero_is_none() -> None:
    found = state()
    for replicas in (2, 3):
        wishes.floor(found, replicas, NOW)
        assert [(c.source, c.count, c.warmth) for c in found.own_claims] == [("spec", replicas, Warmth.HOT)]
    wishes.floor(found, 0, NOW)
    assert found.own_claims == []
