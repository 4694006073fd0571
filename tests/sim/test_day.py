"""The demo's fleet: drawn by a seed, always one that the simulated sites can hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sim import day
from sunfleet import spec

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "follow-the-day.yaml"
GPUS_LEFT = 4  # of a site while one of its nodes is taken back


@pytest.fixture(scope="module")
def body() -> dict[str, Any]:
    return spec.body(EXAMPLE.read_text(), str(EXAMPLE))


@given(seed=st.integers(0, 10**6))
def test_every_seed_draws_a_fleet_that_fits_even_with_a_node_taken_back(body: dict[str, Any], seed: int) -> None:
    fleet = spec.parse_body(day.draw(body, seed))
    wanted = sum(fleet.models[p.model].tensor * max(w.hot for w in p.windows) for p in fleet.pools.values())
    assert 0 < wanted <= GPUS_LEFT


@given(seed=st.integers(0, 10**6))
def test_a_seed_draws_the_same_fleet_again_and_leaves_the_example_alone(body: dict[str, Any], seed: int) -> None:
    assert day.draw(body, seed) == day.draw(body, seed)
    assert body == spec.body(EXAMPLE.read_text(), str(EXAMPLE))


def test_seeds_differ(body: dict[str, Any]) -> None:
    assert len({str(day.draw(body, seed)) for seed in range(50)}) > 20


@given(seed=st.integers(0, 10**6))
def test_users_ask_exactly_in_the_windows_and_in_the_pre_warmed_hour(body: dict[str, Any], seed: int) -> None:
    fleet = spec.parse_body(day.draw(body, seed))
    asked = day.users(fleet)
    windows = sum(len(p.windows) * len(p.sites) for p in fleet.pools.values())
    assert len(asked) == windows + 1
    evening = asked[-1]
    assert (evening.region, evening.until_hour - evening.from_hour) == (day.PREWARMED, 1)
    others = [a for a in asked[:-1] if (a.region, a.model) == (evening.region, evening.model)]
    assert all(a.until_hour < evening.from_hour for a in others)
