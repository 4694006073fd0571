"""What news does to a residence."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sunfleet import progress
from sunfleet.leadtime import KEEP
from sunfleet.ledger import Held, Hold
from sunfleet.residency import Phase, Residence
from sunfleet.warmth import Warmth

NOW = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def test_an_opening_teaches_and_forgives() -> None:
    troubled = Residence(failures=3, not_before=NOW, blocked="EngineExited: boom")
    after = progress.opened(troubled, 4 * MINUTE, cold=True)
    assert (after.failures, after.not_before, after.blocked) == (0, None, "")
    assert [(o.took, o.cold) for o in after.openings] == [(4 * MINUTE, True)]


def test_an_opening_of_unknown_length_teaches_nothing_but_forgives() -> None:
    after = progress.opened(Residence(failures=2), None, cold=False)
    assert (after.failures, after.openings) == (0, ())


def test_what_is_remembered_is_bounded() -> None:
    residence = Residence()
    for minutes in range(3 * KEEP):
        residence = progress.opened(residence, minutes * MINUTE, cold=False)
    assert [o.took for o in residence.openings] == [m * MINUTE for m in range(2 * KEEP, 3 * KEEP)]


@given(st.integers(1, 10_000))
def test_each_failure_waits_no_shorter_than_the_one_before_and_never_for_ever(failures: int) -> None:
    now, next_one = (progress.pause_after(n, permanent=False) for n in (failures, failures + 1))
    assert timedelta(seconds=10) <= now <= next_one <= progress.BACKOFF_MOST


def test_what_cannot_work_is_not_tried_in_a_hurry() -> None:
    assert progress.pause_after(1, permanent=True) == progress.BACKOFF_MOST


def test_failures_in_a_row_are_counted() -> None:
    once = progress.failed(Residence(), NOW, "a")
    twice = progress.failed(once, NOW + MINUTE, "b")
    assert (twice.failures, twice.not_before, twice.blocked) == (2, NOW + MINUTE, "b")


def test_a_stray_replica_gets_a_place_on_its_own_hold() -> None:
    hold = Hold(
        id="h1",
        generation=1,
        owner="model/s/llm/m",
        key="k1",
        rung=Warmth.HOT,
        node="n1",
        node_uid="u",
        resource="nvidia.com/gpu",
        count=2,
    )
    found = progress.adopted(Residence(), "k1", Held(hold=hold, retire_by=NOW), NOW)
    place = found.place("k1")
    assert place is not None
    assert (place.hold, place.started, place.retire_by, place.phase) == (hold, True, NOW, Phase.STARTING)
