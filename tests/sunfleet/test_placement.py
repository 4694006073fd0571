"""Where one item goes, and what it is told when it goes nowhere."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sunfleet import ledger as rules
from sunfleet.ledger import Ledger
from sunfleet.placement import sliced
from tests.sunfleet.ledgers import (
    GPU,
    H200,
    closure,
    codes,
    hot,
    inventory,
    node,
    placed,
    site,
    staged,
    want,
    where,
    why,
)


def test_the_tightest_node_that_fits_is_taken() -> None:
    now = placed(site(node("n1", 8), node("n2", 4), node("n3", 2)), want("a", 1, hot("k1", 3)))
    assert where(now) == {("a", "k1"): "n2"}


def test_what_others_use_is_not_free() -> None:
    now = placed(site(node("n1", 8, foreign=5), node("n2", 8, foreign=4)), want("a", 1, hot("k1", 4)))
    assert where(now) == {("a", "k1"): "n2"}
    assert "others use 9" in why(placed(now, want("a", 2, hot("k1", 4), hot("k2", 4))), "a", "k2")


@pytest.mark.parametrize("flags", [{"ready": False}, {"schedulable": False}])
def test_nodes_that_are_not_ready_or_cordoned_take_nothing(flags: dict[str, bool]) -> None:
    now = placed(site(node("n1", 8, **flags)), want("a", 1, hot("k1"), staged("k2")))  # type: ignore[arg-type]
    assert codes(now, "a") == {"k1": "NodesNotReady", "k2": "NodesNotReady"}
    assert why(now, "a", "k1") == "site tokyo needs 1 nvidia.com/gpu on one node: n1 is not ready or cordoned"


def test_the_product_must_match() -> None:
    now = placed(site(node("n1", 8, product="NVIDIA-A100")), want("a", 1, hot("k1", 1, product=H200)))
    assert why(now, "a", "k1") == "site tokyo has no node with NVIDIA-H200; there is NVIDIA-A100"
    now = rules.observed(now, inventory(node("n1", 8, product="NVIDIA-A100"), node("n2", 8)))
    assert where(now) == {("a", "k1"): "n2"}


def test_weights_that_are_there_beat_a_tighter_fit() -> None:
    now = placed(site(node("n1", 8), node("n2", 4)), want("a", 1, hot("k1", 4, prefer=("n1",))))
    assert where(now) == {("a", "k1"): "n1"}


def test_an_engine_goes_where_its_owner_has_staged() -> None:
    now = placed(site(node("n1", 8), node("n2", 8)), want("b", 1, staged("k0")), want("a", 1, staged("k1")))
    assert where(now) == {("b", "k0"): "n1", ("a", "k1"): "n2"}
    assert where(placed(now, want("a", 2, staged("k1"), hot("k2", 4))))["a", "k2"] == "n2"


def test_a_preferred_node_without_room_is_passed() -> None:
    now = placed(site(node("n1", 2), node("n2", 4)), want("a", 1, hot("k1", 4, prefer=("n1", "gone"))))
    assert where(now) == {("a", "k1"): "n2"}


def test_staged_places_take_no_devices_but_need_a_node_that_could_hold_the_replica() -> None:
    now = placed(site(node("n1", 2), node("n2", 4)), want("x", 1, hot("k1", 4)), want("a", 1, staged("k1", 4)))
    assert where(now) == {("x", "k1"): "n2", ("a", "k1"): "n2"}
    assert [h.count for h in now.holds] == [4, 0]
    now = placed(now, want("b", 1, staged("k1", 5)))
    assert codes(now, "b") == {"k1": "NoNodeLargeEnough"}


def test_staged_places_of_one_owner_are_spread() -> None:
    now = placed(
        site(*(node(f"n{i}") for i in range(4))), want("a", 1, hot("k0", 4), *(staged(f"k{i}", 4) for i in (1, 2, 3)))
    )
    assert sorted(where(now).values()) == ["n0", "n1", "n2", "n3"]


def test_a_node_is_shared_by_as_many_places_as_it_can_hold_replicas() -> None:
    now = placed(site(node("n1"), node("n2")), want("a", 1, *(staged(f"k{i}", 4) for i in range(5))))
    assert sorted(where(now).values()) == ["n1", "n1", "n2", "n2"]
    assert codes(now, "a") == {"k4": "Full"}


def test_staged_places_of_many_owners_are_spread() -> None:
    nodes = [node(f"n{i}") for i in range(4)]
    now = placed(site(*nodes), *(want(f"o{i}", 1, staged("k1")) for i in range(8)))
    spread = list(where(now).values())
    assert {n: spread.count(n) for n in spread} == {f"n{i}": 2 for i in range(4)}


@pytest.mark.parametrize(
    ("resource", "product"),
    [
        ("nvidia.com/gpu.shared", ""),
        ("nvidia.com/mig-1g.18gb", ""),
        (GPU, "NVIDIA-H200-SHARED"),
        (GPU, "A100-MIG-1g.5gb"),
    ],
)
def test_several_slices_never_make_one_replica(resource: str, product: str) -> None:
    now = site(node("n1", 8, resource=resource, product=product))
    now = placed(now, want("a", 1, hot("k1", 2, resource=resource), hot("k2", 1, resource=resource)))
    assert where(now) == {("a", "k2"): "n1"}
    assert codes(now, "a")["k1"] in ("SlicedGpu", "NoSuchGpu")
    assert sliced(resource, product)


def test_each_resource_is_counted_by_itself() -> None:
    """MIG mixed: whole devices and slices of one machine are different things, and labels give no size."""
    both = node("n1", 2)
    slices = node("x", 7, resource="nvidia.com/mig-1g.18gb", product="").devices[0]
    now = site(type(both)(name="n1", uid="u", devices=(*both.devices, slices)))
    now = placed(now, want("a", 1, hot("k1", 2), hot("k2", 1, resource="nvidia.com/mig-1g.18gb")))
    assert rules.free(now, "n1", GPU) == 0
    assert rules.free(now, "n1", "nvidia.com/mig-1g.18gb") == 6


def test_a_replica_without_devices_needs_a_node_alone() -> None:
    now = placed(site(node("n1", 1), node("n2", 1, ready=False)), want("a", 1, hot("k1", 1, resource="")))
    assert where(now) == {("a", "k1"): "n1"}
    assert now.holds[0].count == 0


def test_the_most_lasting_reason_is_told() -> None:
    now = rules.closed(site(node("n1", 4), node("n2", 8), node("n3", 8, ready=False)), closure("n2"))
    now = placed(now, want("a", 1, hot("k1", 9), hot("k2", 8), hot("k3", 5)))
    assert codes(now, "a") == {"k1": "NoNodeLargeEnough", "k2": "NodesClosed", "k3": "NodesClosed"}
    assert why(now, "a", "k2") == (
        "site tokyo needs 8 nvidia.com/gpu on one node: n2 is being taken back, n3 is not ready or cordoned"
    )


@given(
    sizes=st.lists(st.integers(0, 8), min_size=1, max_size=6),
    counts=st.lists(st.integers(1, 8), max_size=12),
    order=st.randoms(use_true_random=False),
)
def test_the_order_in_which_facts_are_listed_does_not_matter(
    sizes: list[int], counts: list[int], order: Random
) -> None:
    nodes = [node(f"n{i}", size) for i, size in enumerate(sizes)]
    items = [hot(f"k{i:02d}", count) for i, count in enumerate(counts)]
    straight = placed(site(*nodes), want("a", 1, *items))
    order.shuffle(nodes)
    order.shuffle(items)
    shuffled = placed(site(*nodes), want("a", 1, *items))
    assert (shuffled.holds, shuffled.queue) == (straight.holds, straight.queue)


def test_who_may_choose_leaves_what_others_insist_on() -> None:
    """The H200 node is the tighter fit, but somebody takes nothing else."""
    nodes = (node("n1", 8, product="NVIDIA-A100"), node("n2", 4))
    now = placed(Ledger(), want("any", 1, hot("k1", 4, priority=500)), want("picky", 1, hot("k1", 4, product=H200)))
    now = rules.observed(now, inventory(*nodes))
    assert where(now) == {("any", "k1"): "n1", ("picky", "k1"): "n2"}
