"""A change that takes much away must be meant."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sunfleet.model import Counts, FleetSpec, PoolSpec, WindowSpec
from sunfleet.removals import Removal, refused, removals


def pool(
    name: str, sites: tuple[str, ...], hot: int, *, model: str = "", otherwise: int = 0, extra: int | None = None
) -> PoolSpec:
    windows = [WindowSpec(name="day", hot=hot)] + ([WindowSpec(name="extra", hot=extra)] if extra is not None else [])
    return PoolSpec(
        name=name, model=model or name, sites=sites, windows=tuple(windows), otherwise=Counts(hot=otherwise)
    )


def fleet(*pools: PoolSpec) -> FleetSpec:
    return FleetSpec(name="f", pools={p.name: p for p in pools})


def codes(old: FleetSpec, new: FleetSpec) -> list[str]:
    return [p.path for p in refused(old, new)]


BIG = pool("big", ("a", "b"), 50)


def test_equal_fleets_and_growing_ones_remove_nothing() -> None:
    old = fleet(pool("chat", ("a",), 2))
    assert removals(old, old) == ()
    assert removals(old, fleet(pool("chat", ("a", "b"), 3), pool("more", ("a",), 9))) == ()
    assert refused(fleet(), old) == ()


def test_the_last_hot_site_of_a_pool_does_not_go_by_accident() -> None:
    """However small its share of the fleet is, and whether the pool, its sites or its windows go."""
    old = fleet(BIG, pool("chat", ("a",), 1))
    assert codes(old, fleet(BIG)) == ["pools.chat"]
    assert codes(old, fleet(BIG, pool("chat", ("a",), 0))) == ["pools.chat"]
    assert codes(old, fleet(BIG, PoolSpec(name="chat", model="chat", sites=("a",)))) == ["pools.chat"]
    (problem,) = refused(old, fleet(BIG))
    assert problem.message == "pool chat would be hot nowhere any more"
    assert "--allow-removals" in problem.hint


def test_moving_a_pool_to_another_site_keeps_it_hot_somewhere() -> None:
    old, new = fleet(BIG, pool("chat", ("a",), 1)), fleet(BIG, pool("chat", ("b",), 1))
    assert removals(old, new) == (Removal(pool="chat", site="a", replicas=1, last=False),)
    assert refused(old, new) == ()


def test_another_model_in_a_pool_takes_the_old_one_away() -> None:
    old, new = fleet(BIG, pool("chat", ("a",), 1)), fleet(BIG, pool("chat", ("a",), 1, model="other"))
    assert codes(old, new) == ["pools.chat"]


def test_a_tenth_of_the_hot_replicas_may_go_and_no_more() -> None:
    old = fleet(pool("chat", ("a", "b"), 50))
    assert refused(old, fleet(pool("chat", ("a", "b"), 45))) == ()
    (problem,) = refused(old, fleet(pool("chat", ("a", "b"), 44)))
    assert (problem.path, problem.message) == ("pools", "12 of 100 declared hot replicas would go, more than a tenth")


def test_one_of_ten_goes_and_one_of_nine_does_not() -> None:
    assert refused(fleet(pool("chat", ("a",), 10)), fleet(pool("chat", ("a",), 9))) == ()
    assert codes(fleet(pool("chat", ("a",), 9)), fleet(pool("chat", ("a",), 8))) == ["pools"]


def test_a_pool_declares_the_most_of_its_windows_and_of_what_holds_outside() -> None:
    old = fleet(pool("chat", ("a",), 2, extra=10))
    assert refused(old, fleet(pool("chat", ("a",), 0, otherwise=10))) == ()
    assert codes(old, fleet(pool("chat", ("a",), 2))) == ["pools"]


def test_staged_nodes_are_not_counted() -> None:
    old = fleet(PoolSpec(name="chat", model="m", sites=("a",), otherwise=Counts(staged=9)))
    assert refused(old, fleet()) == ()


pools = st.lists(
    st.builds(
        lambda name, sites, hot, otherwise: pool(name, tuple(sites), hot, otherwise=otherwise),
        st.sampled_from("pqr"),
        st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True),
        st.integers(0, 20),
        st.integers(0, 3),
    ),
    max_size=3,
).map(lambda found: fleet(*found))


def declared(of: FleetSpec) -> int:
    return sum(max([p.otherwise.hot, *(w.hot for w in p.windows)]) * len(p.sites) for p in of.pools.values())


@given(pools, pools)
def test_what_passes_leaves_nine_tenths_and_every_hot_pool_hot(old: FleetSpec, new: FleetSpec) -> None:
    gone = sum(r.replicas for r in removals(old, new))
    assert 0 <= gone <= declared(old)
    assert declared(new) >= declared(old) - gone
    if not refused(old, new):
        assert gone * 10 <= declared(old)
        hot_before = {p.name for p in old.pools.values() if declared(fleet(p))}
        assert hot_before <= {p.name for p in new.pools.values() if declared(fleet(p))}


@given(pools, pools)
def test_what_is_refused_is_a_removal(old: FleetSpec, new: FleetSpec) -> None:
    assert bool(removals(old, new)) or not refused(old, new)
