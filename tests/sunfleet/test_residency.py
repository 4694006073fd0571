"""The planner: from what a deployment has to what it should have. The shortest account of what we do."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sunfleet import residency
from sunfleet.ledger import Hold
from sunfleet.residency import Add, Drop, Need, Phase, Place, Residence
from sunfleet.warmth import Cap, Claim, Target, Warmth

NOW = datetime(2026, 11, 2, 6, 0, tzinfo=UTC)
HOUR = timedelta(hours=1)
BUDGET = timedelta(minutes=5)


def claim(hot: int, start: float, end: float, *, minimum: int = 0, source: str = "window/p/day") -> Claim:
    """A hot claim from `start` to `end` hours after NOW."""
    return Claim(
        source=source,
        warmth=Warmth.HOT,
        count=hot,
        ready_by=NOW + start * HOUR,
        expires_at=NOW + end * HOUR,
        minimum=minimum,
    )


def hold(key: str, node: str = "n1", count: int = 1) -> Hold:
    return Hold(
        id=f"h-{key}",
        generation=1,
        owner="model/s/llm/m",
        key=key,
        rung=Warmth.HOT,
        node=node,
        node_uid=f"uid-{node}",
        resource="nvidia.com/gpu",
        count=count,
    )


def place(key: str, phase: Phase = Phase.SERVING, *, rung: Warmth = Warmth.HOT, node: str = "n1") -> Place:
    return Place(
        key=key, rung=rung, added=NOW - HOUR, since=NOW - HOUR, phase=phase, hold=hold(key, node), started=True
    )


def need(hot: int = 0, staged: int = 0, *, capped: bool = False, minimum: int = 0) -> Need:
    return Need(
        hot=hot,
        staged=max(hot, staged),
        keep_hot=hot,
        keep_staged=max(hot, staged),
        minimum=minimum,
        because="test",
        ready_by=None,
        capped=capped,
    )


def plan(having: Residence, wanting: Need, now: datetime = NOW, residency_for: timedelta = timedelta(0)) -> tuple:  # type: ignore[type-arg]
    return residency.plan(having, wanting, now, min_residency=residency_for, retire_budget=BUDGET)


def test_a_window_is_wanted_a_lead_before_it_opens() -> None:
    claims = (claim(2, 1, 3),)
    assert residency.horizon(claims, (), NOW, timedelta(minutes=30)).hot == 0
    assert residency.horizon(claims, (), NOW, timedelta(hours=1)).hot == 2


def test_a_gap_shorter_than_the_lead_closes_nothing() -> None:
    claims = (claim(2, -2, 0.25), claim(2, 0.75, 4))
    assert residency.horizon(claims, (), NOW + 0.5 * HOUR, timedelta(hours=1)).hot == 2


def test_an_opening_is_not_abandoned_when_its_own_progress_shortens_the_lead() -> None:
    """With the weights there, or one opening measured, the lead is shorter: what was begun goes on."""
    claims, short, long = (claim(1, 1, 3),), timedelta(minutes=5), timedelta(minutes=90)
    begun = residency.applied(Residence(), plan(Residence(), residency.horizon(claims, (), NOW, long)), NOW)
    assert len(begun.places) == 1
    for minutes in (0, 10, 50, 70, 170):
        now = NOW + timedelta(minutes=minutes)
        assert plan(begun, residency.horizon(claims, (), now, short, begun.places), now) == ()
    assert [type(s) for s in plan(begun, residency.horizon((), (), NOW, short, begun.places))] == [Drop]


def test_what_was_looked_at_once_does_not_keep_a_place_for_ever() -> None:
    """Two windows an hour apart, opened under a long lead: the gap is kept only by a lead as it is then."""
    claims, short, long = (claim(1, 1, 3), claim(1, 4, 6)), timedelta(minutes=5), timedelta(minutes=90)
    begun = residency.applied(Residence(), plan(Residence(), residency.horizon(claims, (), NOW, long)), NOW)
    gap = NOW + 3 * HOUR
    assert [type(s) for s in plan(begun, residency.horizon(claims, (), gap, short, begun.places), gap)] == [Drop]


def test_a_cap_beats_a_claim_that_is_ahead_of_it() -> None:
    cap = Cap(source="unload/1", warmth=Warmth.STAGED, since=NOW, until=NOW + HOUR)
    wanted = residency.horizon((claim(2, -1, 3),), (cap,), NOW, timedelta(minutes=10))
    assert (wanted.hot, wanted.staged, wanted.capped) == (0, 2, True)


def test_missing_replicas_are_added_the_minimum_first() -> None:
    steps = plan(Residence(), need(3, minimum=1))
    assert [s.minimum for s in steps if isinstance(s, Add)] == [True, False, False]


def test_surplus_goes_from_the_least_useful() -> None:
    having = Residence(places=(place("a"), place("b", Phase.LOADING), place("c")))
    assert plan(having, need(2)) == (Drop(key="b", why="the window closed"),)


def test_a_replica_stays_for_its_minimum_residency() -> None:
    having = Residence(places=(replace(place("a"), since=NOW - timedelta(minutes=5)),))
    assert plan(having, need(0), residency_for=timedelta(minutes=20)) == ()
    assert plan(having, need(0), NOW + timedelta(minutes=16), timedelta(minutes=20)) != ()


def test_a_cap_does_not_wait_for_the_minimum_residency() -> None:
    having = Residence(places=(replace(place("a"), since=NOW),))
    assert plan(having, need(0, capped=True), residency_for=HOUR) == (Drop(key="a", why="capped"),)


def test_on_a_node_that_is_taken_back_the_replacement_comes_first() -> None:
    closing = replace(place("a"), retire_by=NOW + HOUR)
    steps = plan(Residence(places=(closing,)), need(1))
    assert [type(s) for s in steps] == [Add]
    replaced = Residence(places=(closing, place("b", node="n2")))
    assert plan(replaced, need(1)) == (Drop(key="a", why="the node is taken back", by=NOW + HOUR),)


def test_a_deadline_moves_a_replica_even_without_a_replacement() -> None:
    closing = replace(place("a"), retire_by=NOW + timedelta(minutes=4))
    assert Drop(key="a", why="the node is taken back", by=closing.retire_by) in plan(
        Residence(places=(closing,)), need(1)
    )


def test_what_has_not_served_leaves_a_closing_node_at_once() -> None:
    closing = replace(place("a", Phase.LOADING), retire_by=NOW + HOUR)
    assert any(isinstance(s, Drop) and s.key == "a" for s in plan(Residence(places=(closing,)), need(1)))


def test_hot_replicas_count_as_staged() -> None:
    having = Residence(places=(place("a"),))
    assert plan(having, need(1, staged=1)) == ()
    steps = plan(having, need(1, staged=3))
    assert [s.rung for s in steps if isinstance(s, Add)] == [Warmth.STAGED] * 2


def test_a_closing_window_keeps_the_weights_where_they_are() -> None:
    having = Residence(places=(place("a", node="n7"),))
    steps = plan(having, need(0, staged=1))
    assert steps == (
        Drop(key="a", why="the window closed"),
        Add(rung=Warmth.STAGED, minimum=False, prefer=("n7",), why="test", ahead=NOW),
    )


def test_after_a_failure_nothing_is_added_before_the_back_off_is_over() -> None:
    having = Residence(not_before=NOW + HOUR)
    assert plan(having, need(1)) == ()
    assert len(plan(having, need(1), NOW + HOUR)) == 1


def test_while_paused_exactly_what_was_wanted_is_kept() -> None:
    wanted = residency.frozen(Target(hot=2, staged=3))
    assert (wanted.hot, wanted.staged) == (2, 3)


@pytest.mark.parametrize("phase", [p for p in Phase if p not in (Phase.GONE, Phase.FAILED)])
def test_dropping_a_started_replica_lets_it_leave_and_forgets_one_that_never_started(phase: Phase) -> None:
    started = Residence(places=(place("a", phase),))
    left = residency.applied(started, (Drop(key="a", why="x"),), NOW)
    assert [(p.leaving, p.left_at) for p in left.places] == [(True, NOW)]
    waiting = Residence(places=(Place(key="a", rung=Warmth.HOT, added=NOW),))
    assert residency.applied(waiting, (Drop(key="a", why="x"),), NOW).places == ()


@given(
    hot=st.integers(0, 6),
    staged=st.integers(0, 6),
    phases=st.lists(st.sampled_from([Phase.WAITING, Phase.STAGED, Phase.LOADING, Phase.SERVING]), max_size=8),
)
def test_taking_the_steps_leaves_nothing_to_do(hot: int, staged: int, phases: list[Phase]) -> None:
    """Applying a plan twice adds nothing (L2: a constant wish means at most one change)."""
    places = tuple(replace(place(f"p{i}", phase), started=phase is not Phase.WAITING) for i, phase in enumerate(phases))
    once = residency.applied(Residence(places=places), plan(Residence(places=places), need(hot, staged)), NOW)
    assert plan(once, need(hot, staged)) == ()
    staying = [p for p in once.places if not p.leaving]
    assert sum(1 for p in staying if p.rung is Warmth.HOT) == hot
    assert len(staying) == max(hot, staged)


@given(
    starts=st.lists(st.tuples(st.integers(-48, 48), st.integers(1, 24), st.integers(0, 5)), max_size=6),
    lead=st.integers(0, 12),
)
@settings(max_examples=200)
def test_the_horizon_is_never_below_what_is_wanted_now_or_at_the_end_of_the_lead(
    starts: list[tuple[int, int, int]], lead: int
) -> None:
    claims = tuple(claim(n, s, s + d, source=f"w{i}") for i, (s, d, n) in enumerate(starts))
    wanted = residency.horizon(claims, (), NOW, lead * HOUR)
    for instant in (NOW, NOW + lead * HOUR):
        assert wanted.hot >= max(
            (c.count for c in claims if c.ready_by <= instant and c.expires_at and instant < c.expires_at),
            default=0,
        )


@given(
    starts=st.lists(st.tuples(st.integers(-5, 30), st.integers(1, 9), st.integers(0, 4)), max_size=5),
    lead=st.integers(0, 5),
)
def test_between_two_looks_time_alone_changes_nothing(starts: list[tuple[int, int, int]], lead: int) -> None:
    """`next_look` never oversleeps: until it, the plan is the same."""
    claims = tuple(claim(n, s, s + d, source=f"w{i}") for i, (s, d, n) in enumerate(starts))
    after = lead * HOUR
    having = Residence()
    look = residency.next_look(having, claims, (), NOW, lead=after, min_residency=timedelta(0), retire_budget=BUDGET)
    end = look or NOW + timedelta(days=3)
    first = residency.horizon(claims, (), NOW, after)
    step = (end - NOW) / 7
    for i in range(7):
        then = residency.horizon(claims, (), NOW + step * i, after)
        assert (then.hot, then.staged) == (first.hot, first.staged)


class Life(RuleBasedStateMachine):
    """A deployment under random wishes, grants, failures and take-backs."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.having = Residence()
        self.wanting = need(0)
        self.keys: set[str] = set()

    def _step(self) -> None:
        steps = plan(self.having, self.wanting, self.now)
        before = {p.key for p in self.having.places}
        self.having = residency.applied(self.having, steps, self.now)
        for key in {p.key for p in self.having.places} - before:
            assert key not in self.keys, "a key was used twice"
            self.keys.add(key)

    @rule(hot=st.integers(0, 4), staged=st.integers(0, 5))
    def wish(self, hot: int, staged: int) -> None:
        self.wanting = need(hot, staged)
        self._step()

    @rule(minutes=st.integers(1, 90))
    def time_passes(self, minutes: int) -> None:
        self.now += timedelta(minutes=minutes)
        self._step()

    @precondition(lambda self: any(p.phase is Phase.WAITING for p in self.having.places))
    @rule(data=st.data(), node=st.sampled_from(["n1", "n2", "n3"]))
    def granted(self, data: st.DataObject, node: str) -> None:
        waiting = [p for p in self.having.places if p.phase is Phase.WAITING]
        chosen = data.draw(st.sampled_from(waiting))
        self.having = self.having.with_place(
            replace(chosen, hold=hold(chosen.key, node), started=True, phase=Phase.STAGING, since=self.now)
        )
        self._step()

    @precondition(lambda self: any(p.started for p in self.having.places))
    @rule(data=st.data(), phase=st.sampled_from([Phase.STAGED, Phase.LOADING, Phase.SERVING]))
    def moved(self, data: st.DataObject, phase: Phase) -> None:
        chosen = data.draw(st.sampled_from([p for p in self.having.places if p.started]))
        self.having = self.having.with_place(replace(chosen, phase=phase, since=self.now))
        self._step()

    @precondition(lambda self: any(p.started for p in self.having.places))
    @rule(data=st.data())
    def gone(self, data: st.DataObject) -> None:
        chosen = data.draw(st.sampled_from([p for p in self.having.places if p.started]))
        self.having = self.having.without(chosen.key)
        self._step()

    @precondition(lambda self: any(p.hold for p in self.having.places))
    @rule(data=st.data(), minutes=st.integers(1, 120))
    def node_taken_back(self, data: st.DataObject, minutes: int) -> None:
        chosen = data.draw(st.sampled_from([p for p in self.having.places if p.hold]))
        by = self.now + timedelta(minutes=minutes)
        for p in self.having.places:
            if p.node == chosen.node:
                self.having = self.having.with_place(replace(p, retire_by=by))
        self._step()

    @invariant()
    def as_many_as_wanted_are_there_or_coming(self) -> None:
        staying = [p for p in self.having.places if not p.leaving and p.retire_by is None]
        assert sum(1 for p in staying if p.rung is Warmth.HOT) == self.wanting.hot

    @invariant()
    def created_never_exceeds_desired_by_more_than_those_that_leave(self) -> None:
        leaving = sum(1 for p in self.having.places if p.leaving or p.retire_by is not None)
        assert len(self.having.places) <= max(self.wanting.hot, self.wanting.staged) + leaving

    @invariant()
    def nothing_outstays_a_deadline(self) -> None:
        for p in self.having.places:
            if p.retire_by is not None and self.now >= p.retire_by - BUDGET:
                assert p.leaving


TestLife = Life.TestCase
