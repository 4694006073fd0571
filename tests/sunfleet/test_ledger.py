"""The ledger's rules, one fact at a time."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from sunfleet import ledger as rules
from sunfleet.inventory import Inventory
from sunfleet.ledger import Closure, Ledger
from tests.sunfleet.ledgers import (
    GPU,
    NOON,
    closure,
    codes,
    hold_of,
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


def test_a_want_is_granted_with_a_new_generation() -> None:
    after = placed(site(node("n1")), want("a", 1, hot("k1", 4), hot("k2", 4)))
    grant = rules.grant(after, "a")
    assert [(h.hold.id, h.hold.generation, h.hold.key, h.hold.count) for h in grant.holds] == [
        ("h1", 1, "k1", 4),
        ("h2", 2, "k2", 4),
    ]
    assert (grant.want_version, grant.version, grant.waiting) == (1, after.revision, ())


def test_an_old_want_changes_nothing() -> None:
    now = placed(site(node("n1")), want("a", 2, hot("k1")))
    assert rules.wanted(now, want("a", 2)) is now
    assert rules.wanted(now, want("a", 1, hot("k9", 8))) is now


def test_what_is_not_started_is_freed_when_it_is_not_wanted() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1", 8)), want("a", 2))
    assert now.holds == ()
    assert rules.free(now, "n1", GPU) == 8


def test_what_is_started_stays_held_until_its_pods_are_gone() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1", 8)))
    hold = hold_of(now, "a", "k1")
    now = placed(now, want("a", 2, started=(hold.id,)), want("b", 1, hot("k1", 8)))
    assert hold_of(now, "a", "k1").leaving
    assert codes(now, "b") == {"k1": "Full"}
    now = rules.released(now, hold.id)
    assert where(now) == {("b", "k1"): "n1"}


def test_started_is_never_taken_back_by_a_later_want() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1")))
    now = placed(now, want("a", 2, hot("k1"), started=("h1",)), want("a", 3, hot("k1")))
    assert hold_of(now, "a", "k1").started


def test_a_released_key_is_never_granted_again() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1")), want("a", 2, hot("k1"), started=("h1",)))
    now = rules.released(now, "h1")
    assert (rules.grant(now, "a").holds, rules.grant(now, "a").waiting) == ((), ())
    now = placed(now, want("a", 3, hot("k1"), started=("h1",)))  # sent before the owner heard
    assert now.holds == ()
    now = placed(now, want("a", 4, hot("k2")))
    assert (where(now), now.spent) == ({("a", "k2"): "n1"}, ())


def test_an_unknown_release_changes_nothing() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1")))
    gone = rules.released(now, "h1")
    assert rules.released(gone, "h1") is gone
    assert rules.released(gone, "h99") is gone


def test_minimums_come_first_then_priority_then_arrival() -> None:
    now = site()
    for owner, item in (
        ("d", hot("k1", 8, priority=900)),
        ("c", hot("k1", 8, priority=100)),
        ("a", hot("k1", 8, priority=100)),  # came after c
        ("b", hot("k1", 8, priority=1, minimum=True)),
    ):
        now = placed(now, want(owner, 1, item))
    served = []
    for count in range(1, 5):
        now = rules.observed(now, inventory(*(node(f"n{i}") for i in range(count))))
        served.append(now.holds[-1].owner)
    assert served == ["b", "d", "c", "a"]


def test_two_racing_asks_for_the_last_bay_have_one_winner() -> None:
    now = placed(site(node("n1", 4)), want("b", 1, hot("k1", 4)), want("c", 1, hot("k1", 4)))
    assert (where(now), codes(now, "c")) == ({("b", "k1"): "n1"}, {"k1": "Full"})


def test_gangs_are_packed_not_summed() -> None:
    """12 replicas of 4 on 10 nodes of 6: the sum fits, only one per node does."""
    nodes = [node(f"n{i}", 6) for i in range(10)]
    now = placed(site(*nodes), want("a", 1, *(hot(f"k{i:02d}", 4) for i in range(12))))
    assert len(now.holds) == len(set(where(now).values())) == 10
    assert why(now, "a", "k10") == (
        "site tokyo has 20 free nvidia.com/gpu, needs 4 on one node: largest free is 2 on n0"
    )


def test_the_wait_is_explained_in_words_with_numbers() -> None:
    now = placed(site(node("n1", 4)), want("a", 1, hot("k1", 3)), want("b", 1, hot("k1", 2)))
    assert why(now, "b", "k1") == ("site tokyo has 1 free nvidia.com/gpu, needs 2 on one node: largest free is 1 on n1")


def test_leftover_devices_are_shown_as_stranded() -> None:
    now = placed(site(node("n1", 3)), want("a", 1, hot("k1", 2)))
    assert [(s.node, s.free, s.smallest) for s in rules.stranded(now)] == [("n1", 1, 2)]
    assert rules.stranded(placed(now, want("b", 1, hot("k1", 1)))) == ()


def test_smaller_items_pass_a_waiting_one_but_not_on_its_node() -> None:
    """The head of the queue keeps the node where it would fit first, so that it is never starved."""
    now = placed(site(node("n1"), node("n2")), want("x", 1, hot("k1", 5)), want("y", 1, hot("k1", 6)))
    now = placed(now, want("big", 1, hot("k1", 8, priority=500)))
    assert where(now)["x", "k1"] == "n1"
    now = placed(now, want("small", 1, hot("k1"), hot("k2"), hot("k3")))
    assert {k: n for (o, k), n in where(now).items() if o == "small"} == {"k1": "n2", "k2": "n2"}
    assert codes(now, "small") == {"k3": "Reserved"}
    now = placed(now, want("x", 2))
    assert where(now)["big", "k1"] == "n1"


def test_the_kept_node_is_the_one_that_empties_next() -> None:
    now = placed(site(node("n1"), node("n2")), want("x", 1, hot("k1", 4)), want("y", 1, hot("k1", 6)))
    now = placed(now, want("y", 2, started=(hold_of(now, "y", "k1").id,)))  # y leaves n2
    now = placed(now, want("big", 1, hot("k1", 8)), want("small", 1, hot("k1")))
    assert where(now)["small", "k1"] == "n1"


def test_an_empty_observation_removes_nothing_and_alarms() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1")))
    blind = rules.observed(now, Inventory())
    assert (blind.inventory, blind.holds) == (now.inventory, now.holds)
    assert rules.alarms(blind) == ("the API server lists no nodes: keeping the 1 seen last",)
    assert rules.observed(blind, Inventory()) is blind
    assert rules.alarms(rules.observed(blind, now.inventory)) == ()


def test_nothing_observed_yet_is_unknown_not_zero() -> None:
    now = placed(Ledger(), want("a", 1, hot("k1")))
    assert codes(now, "a") == {"k1": "NodesUnknown"}


def test_a_missing_node_keeps_its_holds_and_takes_nothing_new() -> None:
    now = placed(site(node("n1"), node("n2", 1)), want("a", 1, hot("k1", 4)))
    now = rules.observed(now, inventory(node("n2", 1)))
    now = placed(now, want("a", 2, hot("k1", 4), hot("k2", 4)))
    assert where(now) == {("a", "k1"): "n1"}
    assert codes(now, "a") == {"k2": "NoNodeLargeEnough"}
    assert rules.alarms(now) == ("node n1 is gone: 1 hold waits until their pods are known to be gone",)
    assert rules.free(now, "n1", GPU) == 0


def test_a_machine_of_the_same_name_is_another_machine() -> None:
    now = placed(site(node("n1", 4)), want("a", 1, hot("k1", 4)))
    now = rules.observed(now, inventory(node("n1", 4, uid="new")))
    assert rules.alarms(now) == ("node n1 is another machine now: 1 hold waits until their pods are known to be gone",)
    assert codes(placed(now, want("b", 1, hot("k1"))), "b") == {"k1": "Full"}


def test_allocatable_below_held_is_an_alarm_and_never_negative() -> None:
    now = placed(site(node("n1", 8)), want("a", 1, hot("k1", 8)))
    now = rules.observed(now, inventory(node("n1", 7, foreign=1)))
    assert rules.alarms(now) == ("node n1 holds 8 nvidia.com/gpu but has 6: allocatable 7, others use 1",)
    assert rules.free(now, "n1", GPU) == 0
    assert rules.summary(now) == ({GPU: 6}, {GPU: 8})
    gone = rules.observed(now, inventory(replace(node("n1"), devices=())))
    assert rules.alarms(gone) == ("node n1 holds 8 nvidia.com/gpu but offers none",)


def test_a_sick_device_is_not_used() -> None:
    """Allocatable 7 of 8 after an Xid: seven it is."""
    now = placed(site(node("n1", 7)), want("a", 1, hot("k1", 8)))
    assert codes(now, "a") == {"k1": "NoNodeLargeEnough"}


def test_a_fresh_node_without_devices_is_not_usable_yet() -> None:
    now = placed(site(node("n1", 0)), want("a", 1, hot("k1"), staged("k2")))
    assert codes(now, "a") == {"k1": "NoSuchGpu", "k2": "NoSuchGpu"}
    assert where(rules.observed(now, inventory(node("n1", 8)))) == {("a", "k1"): "n1", ("a", "k2"): "n1"}


def test_an_earlier_deadline_wins_and_a_later_one_changes_nothing() -> None:
    now = rules.closed(site(node("n1")), closure("n1", 2))
    assert rules.closed(now, closure("n1", 3)) is now
    earlier = rules.closed(now, closure("n1", 1))
    found = rules.closure_of(earlier, "uid-n1")
    assert found is not None
    assert found.by == NOON + timedelta(hours=1)


def test_holds_on_a_node_taken_back_learn_when_to_be_gone() -> None:
    """The owner moves them: no hold ends without its owner's word, even one that is not started yet."""
    now = placed(site(node("n1"), node("n2", 4)), want("a", 1, hot("k1", 8)))
    before, now = now, rules.closed(now, closure("n1"))
    assert rules.grant(now, "a").holds[0].retire_by == NOON + timedelta(hours=1)
    assert rules.changed(before, now) == ("a",)
    moved = placed(now, want("a", 2, hot("k2", 4)))
    assert where(moved) == {("a", "k2"): "n2"}


def test_a_closed_node_takes_nothing_until_it_is_reopened() -> None:
    now = rules.closed(site(node("n1")), closure("n1"))
    now = placed(now, want("a", 1, hot("k1"), staged("k2")))
    assert codes(now, "a") == {"k1": "NodesClosed", "k2": "NodesClosed"}
    assert why(now, "a", "k1") == "site tokyo needs 1 nvidia.com/gpu on one node: n1 is being taken back"
    now = rules.reopened(now, "uid-n1")
    assert where(now) == {("a", "k1"): "n1", ("a", "k2"): "n1"}
    assert rules.reopened(now, "uid-n1") is now


def test_a_closure_is_of_a_machine_not_of_a_name() -> None:
    now = rules.closed(site(node("n1")), closure("n1"))
    now = rules.observed(now, inventory(node("n1", uid="new")))
    assert where(placed(now, want("a", 1, hot("k1")))) == {("a", "k1"): "n1"}


def test_closures_of_machines_long_gone_are_dropped_at_last() -> None:
    now = site(node("n1"))
    for i in range(rules.ABSENT_CLOSURES + 50):
        now = rules.closed(now, Closure(node=f"x{i}", node_uid=f"u{i}", by=NOON + timedelta(hours=i)))
    now = rules.closed(now, closure("n1"))
    now = rules.observed(now, inventory(node("n1"), node("n2")))
    assert len(now.closures) == rules.ABSENT_CLOSURES + 1
    assert rules.closure_of(now, "u0") is None
    assert rules.closure_of(now, "uid-n1") is not None


def test_an_owner_that_is_no_more_leaves_only_what_runs() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1"), hot("k2")))
    now = placed(now, want("a", 2, hot("k1"), hot("k2"), started=("h1",)))
    gone = rules.forgotten(now, "a")
    assert [(h.key, h.leaving) for h in gone.holds] == [("k1", True)]
    assert rules.forgotten(gone, "a") is gone
    assert rules.owners(rules.forgotten(rules.released(gone, "h1"), "a")) == ()


def test_an_owner_that_comes_back_takes_its_running_replica_over() -> None:
    now = placed(site(node("n1")), want("a", 5, hot("k1")), want("a", 6, hot("k1"), started=("h1",)))
    now = rules.forgotten(now, "a")
    now = placed(now, want("a", 7, hot("k1"), started=("h1",)))
    assert not hold_of(now, "a", "k1").leaving


def test_forgetting_an_owner_that_was_never_there_changes_nothing() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1")))
    assert rules.forgotten(now, "b") is now


def test_changed_names_whose_grant_is_news_and_nobody_else() -> None:
    one = placed(site(node("n1", 4)), want("a", 1, hot("k1", 2)), want("b", 1, hot("k1", 4)))
    two = placed(one, want("a", 2, hot("k1", 2), hot("k2", 1)))
    assert rules.changed(one, two) == ("a",)  # b still waits for the same reason, in other numbers
    three = placed(two, want("a", 3))
    assert rules.changed(two, three) == ("a", "b")
    assert rules.changed(three, three) == ()


def test_grants_are_those_of_each_owner() -> None:
    now = placed(site(node("n1", 4)), want("b", 3, hot("k1", 4)), want("a", 1, hot("k1", 4)))
    now = rules.closed(now, closure("n1"))
    assert rules.grants(now) == {o: rules.grant(now, o) for o in ("a", "b")}
    assert list(rules.grants(now)) == ["a", "b"]


def test_usable_counts_open_nodes_and_what_we_hold_on_others() -> None:
    now = placed(site(node("n1"), node("n2", 8, foreign=2)), want("a", 1, hot("k1", 4, prefer=("n1",))))
    assert rules.summary(now) == ({GPU: 14}, {GPU: 4})
    assert rules.summary(rules.closed(now, closure("n1"))) == ({GPU: 10}, {GPU: 4})


def test_a_doubled_key_counts_once() -> None:
    now = placed(site(node("n1")), want("a", 1, hot("k1", 2), hot("k1", 8)))
    assert [(h.key, h.count) for h in now.holds] == [("k1", 2)]
