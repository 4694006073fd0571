"""What people are told of a deployment: honest, stable, and bounded."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from sunfleet import standing
from sunfleet.clock import FleetClock
from sunfleet.leadtime import Opening
from sunfleet.ledger import Hold
from sunfleet.messages import DeploymentInput, DeploymentState, Health, SetClaims
from sunfleet.model import ModelSpec, SiteSpec, Source
from sunfleet.reasons import Journal
from sunfleet.residency import Phase, Place, Residence
from sunfleet.warmth import Cap, Claim, Warmth

NOW = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
LEAD = timedelta(minutes=20)
GIVEN = DeploymentInput(site="tokyo", namespace="llm", name="chat")
SPEC = ModelSpec(
    name="chat", source=Source(scheme="hf", repo="a/b", revision="0" * 40), served_name="chat", fleet="prod"
)
SITE = SiteSpec(name="tokyo", zone="Asia/Tokyo", endpoint="https://ap1.example.net/{deployment}/v1")


def claim(source: str, start: float, end: float | None, count: int = 1) -> Claim:
    return Claim(
        source=source,
        warmth=Warmth.HOT,
        count=count,
        ready_by=NOW + start * HOUR,
        expires_at=None if end is None else NOW + end * HOUR,
    )


def place(key: str, phase: Phase, held_at: datetime | None = NOW) -> Place:
    hold = Hold(
        id=f"h{key}",
        generation=1,
        owner="model/tokyo/llm/chat",
        key=key,
        rung=Warmth.HOT,
        node="n1",
        node_uid="u1",
        resource="nvidia.com/gpu",
        count=2,
    )
    return Place(
        key=key,
        rung=Warmth.HOT,
        added=NOW,
        since=NOW,
        phase=phase,
        hold=hold if held_at else None,
        held_at=held_at,
        started=held_at is not None,
    )


def state(*places: Place, claims: tuple[Claim, ...] = ()) -> DeploymentState:
    found = DeploymentState(spec=SPEC, site=SITE, object_uid="u", residence=Residence(places=places))
    if claims:
        found.claims["pool/prod/chat"] = SetClaims(source="pool/prod/chat", version=1, claims=claims)
    return found


def test_two_hundred_equal_prewarms_are_one_claim() -> None:
    claims: tuple[Claim, ...] = ()
    for i in range(200):
        claims = standing.merged(claims, claim(f"prewarm/{i}", i / 3600, 1 + i / 3600))
    assert len(claims) == 1
    assert (claims[0].ready_by, claims[0].expires_at) == (NOW, NOW + HOUR * (1 + 199 / 3600))


def test_a_pin_is_never_merged_away() -> None:
    claims = standing.merged((claim("pin/a", 0, None),), claim("pin/b", 0, None))
    assert [c.source for c in claims] == ["pin/a", "pin/b"]
    assert [c.source for c in standing.merged(claims, claim("prewarm/x", 1, 2))] == ["pin/a", "pin/b", "prewarm/x"]


def test_a_prewarm_outlives_the_floor_that_covered_it() -> None:
    """A floor can be lowered: what was asked for beside it is still asked for."""
    claims = standing.merged((claim("spec", 0, None, 3),), claim("prewarm/x", 1, 2))
    assert [c.source for c in claims] == ["spec", "prewarm/x"]


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20), st.integers(1, 3)), max_size=12),
    st.integers(0, 60),
)
def test_merging_prewarms_never_lowers_what_is_wanted(rows: list[tuple[int, int, int]], at: int) -> None:
    """A merged set asks at every instant for at least as much as the claims one by one."""
    each = [claim(f"prewarm/{i}", s, s + d, n) for i, (s, d, n) in enumerate(rows)]
    together: tuple[Claim, ...] = ()
    for one in each:
        together = standing.merged(together, one)
    instant = NOW + at * HOUR
    assert standing.present(together, (), instant).hot >= standing.present(tuple(each), (), instant).hot


def test_the_forecast_is_the_hold_plus_the_lead() -> None:
    assert standing.forecast(state(place("a", Phase.LOADING)), 1, LEAD) == NOW + LEAD


def test_nothing_is_forecast_for_a_replica_without_a_place() -> None:
    assert standing.forecast(state(place("a", Phase.WAITING, None)), 1, LEAD) is None


def test_a_forecast_past_the_promise_is_at_risk_before_the_miss() -> None:
    late = state(place("a", Phase.LOADING), claims=(claim("window/chat/day", 0.1, 5),))
    view = standing.view(GIVEN, late, NOW, LEAD)
    assert view.health is Health.AT_RISK
    assert "14 min late" in view.message


def test_what_is_in_time_is_opening() -> None:
    view = standing.view(GIVEN, state(place("a", Phase.LOADING), claims=(claim("w", 0.5, 5),)), NOW, 2 * LEAD)
    assert view.health is Health.AT_RISK
    view = standing.view(GIVEN, state(place("a", Phase.LOADING), claims=(claim("w", 1 / 3, 5),)), NOW, LEAD)
    assert view.health is Health.OPENING


def test_why_a_place_is_missing_is_the_ledgers_own_words() -> None:
    waiting = state(place("a", Phase.WAITING, None), claims=(claim("w", -1, 5),))
    waiting.waiting["a"] = "site tokyo has 2 free, needs 4 on one node"
    view = standing.view(GIVEN, waiting, NOW, LEAD)
    assert (view.health, view.message) == (Health.WAITING, "site tokyo has 2 free, needs 4 on one node")


def test_a_failure_blocks_and_says_itself() -> None:
    blocked = state(claims=(claim("w", -1, 5),))
    blocked.residence = replace(blocked.residence, blocked="Unfit: TP 3 does not divide 32 heads")
    assert standing.view(GIVEN, blocked, NOW, LEAD).message == "Unfit: TP 3 does not divide 32 heads"


def test_a_cap_names_who_and_why() -> None:
    capped = state(claims=(claim("w", -1, 5),))
    capped.caps = [Cap(source="unload/1", warmth=Warmth.COLD, since=NOW, until=NOW + HOUR, by="ken", why="CHG-4471")]
    view = standing.view(GIVEN, capped, NOW, LEAD)
    assert view.health is Health.CAPPED
    assert "ken" in view.message
    assert "CHG-4471" in view.message


def test_a_request_is_answered_with_a_forecast_before_anything_is_granted() -> None:
    asked = state(claims=(claim("prewarm/1", 0, 1),))
    answer = standing.answer(GIVEN, asked, NOW, LEAD)
    assert (answer.wanted, answer.hot, answer.eta) == (1, 0, NOW + LEAD)


def test_what_only_ticks_is_not_news() -> None:
    """Two looks at one state report the same: steady state is free."""
    quiet = state(place("a", Phase.SERVING), claims=(claim("w", -1, 5),))
    first = standing.reported(GIVEN, quiet, NOW, LEAD)
    assert standing.reported(GIVEN, quiet, NOW + timedelta(minutes=7), LEAD) == first


def test_a_route_exists_only_for_what_serves_and_does_not_leave() -> None:
    leaving = replace(place("b", Phase.SERVING), leaving=True)
    found = standing.routes("d", GIVEN, state(place("a", Phase.SERVING), leaving), NOW, NOW + HOUR)
    assert [r.replicas for r in found.routes] == [1]
    assert found.routes[0].expires_at == NOW + HOUR
    assert standing.routes("d", GIVEN, state(leaving), NOW, NOW + HOUR).routes == ()


def test_the_lead_is_learned_and_is_real_time() -> None:
    """At rate 300 an opening of ten real seconds takes fifty fleet minutes."""
    fast = replace(GIVEN, clock=FleetClock(rate=300), lead_prior=timedelta(seconds=20))
    learned = state(place("a", Phase.SERVING))
    assert standing.lead(fast, learned) == timedelta(seconds=20) * 300 * 1.25
    learned.residence = replace(learned.residence, openings=(Opening(took=timedelta(seconds=10), cold=False),))
    assert standing.lead(fast, learned) == timedelta(seconds=10) * 300 * 2


def test_the_next_edge_is_the_next_real_change() -> None:
    claims = (claim("a", -1, 2), claim("b", 0.5, 2), claim("c", 3, 4, 2))
    edge = standing.next_edge(claims, (), NOW)
    assert edge is not None
    assert (edge.at, edge.hot) == (NOW + 2 * HOUR, 0)


@given(st.integers(0, 400), st.integers(0, 400))
def test_events_are_the_reasons_after_the_last_one_told(count: int, told: int) -> None:
    journal = Journal()
    for i in range(count):
        journal = journal.add(NOW, "x", "Code", f"message {i}")
    found = standing.events(journal, told)
    assert len(found) == min(20, max(0, count - told))
    assert all(int(r.id.removeprefix("e-")) > told for r in found)


def test_the_next_opening_is_the_first_hot_claim_that_is_ahead() -> None:
    assert standing.next_opening((claim("a", -1, 2), claim("b", 5, 6), claim("c", 3, 4)), NOW) == NOW + 3 * HOUR
