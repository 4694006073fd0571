"""How early an opening begins: a prior at first, then what happened."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from sunfleet.leadtime import KEEP, MARGIN, Opening, Prior, lead, margin, prior

MINUTE = timedelta(minutes=1)
EXPECTED = Prior(stage=10 * MINUTE, start=5 * MINUTE)


def openings(*minutes: int, cold: bool = False) -> tuple[Opening, ...]:
    return tuple(Opening(took=m * MINUTE, cold=cold) for m in minutes)


def test_staging_takes_size_over_bandwidth() -> None:
    found = prior(75_000_000_000, 10_000_000_000, 5 * MINUTE)
    assert (found.stage, found.start) == (timedelta(seconds=60), 5 * MINUTE)


def test_what_is_not_known_adds_nothing() -> None:
    assert prior(None, 10**10, MINUTE).stage == prior(10**9, None, MINUTE).stage == timedelta(0)


def test_the_prior_holds_until_something_was_measured() -> None:
    assert lead(EXPECTED, (), cold=True) == 15 * MINUTE * MARGIN
    assert lead(EXPECTED, (), cold=False) == 5 * MINUTE * MARGIN


def test_the_longest_of_what_happened_counts_with_a_margin() -> None:
    assert lead(EXPECTED, openings(2, 7, 3), cold=False) == 7 * MINUTE * margin(3)


def test_cold_and_warm_openings_are_measured_apart() -> None:
    seen = openings(40, cold=True) + openings(2)
    assert lead(EXPECTED, seen, cold=False) == 2 * MINUTE * margin(1)
    assert lead(EXPECTED, seen, cold=True) == 40 * MINUTE * margin(1)


def test_an_opening_of_long_ago_is_forgotten() -> None:
    assert lead(EXPECTED, openings(90, *([2] * KEEP)), cold=False) == 2 * MINUTE * margin(KEEP)


def test_one_opening_is_trusted_less_than_many() -> None:
    assert lead(EXPECTED, openings(4), cold=False) == 8 * MINUTE
    found = [margin(count) for count in range(1, KEEP + 1)]
    assert found == sorted(found, reverse=True)
    assert found[-1] > MARGIN


@given(st.lists(st.integers(0, 600), max_size=KEEP), st.booleans())
def test_no_opening_that_is_remembered_took_longer_than_the_lead(minutes: list[int], cold: bool) -> None:
    found = lead(EXPECTED, openings(*minutes, cold=cold), cold)
    assert all(found >= m * MINUTE for m in minutes)
