"""The ledger under every order of facts, doubled, late and lost; its promises are checked after each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sunfleet import ledger as rules
from sunfleet.inventory import Inventory, Node
from sunfleet.ledger import Closure, Hold, Item, Ledger, Queued, Want
from sunfleet.placement import takes_devices
from sunfleet.warmth import Warmth
from tests.sunfleet.ledgers import GPU, NOON, node

OWNERS = st.sampled_from(["a", "b", "c"])
NODES = ("n1", "n2", "n3")
PRODUCTS = st.sampled_from(["H", "L"])
ITEMS = st.builds(
    Item,
    key=st.just(""),
    rung=st.sampled_from([Warmth.HOT, Warmth.HOT, Warmth.STAGED]),
    resource=st.just(GPU),
    count=st.sampled_from([1, 1, 2, 4, 8]),
    product=st.sampled_from(["", "", "H", "L"]),
    priority=st.sampled_from([100, 500]),
    minimum=st.booleans(),
    prefer=st.lists(st.sampled_from(NODES), max_size=2, unique=True).map(tuple),
)


def observation(draw: st.DrawFn) -> Inventory:
    """Some of the nodes, in any order and state; sometimes none at all."""
    names = draw(st.sampled_from([NODES, NODES, NODES[::-1], NODES[1:], NODES[:1], ()]))
    return Inventory(nodes=tuple(_machine(draw, name) for name in names))


def _machine(draw: st.DrawFn, name: str) -> Node:
    return node(
        name,
        draw(st.sampled_from([8, 8, 8, 7, 4, 0])),
        foreign=draw(st.sampled_from([0, 0, 0, 1, 3])),
        product=draw(PRODUCTS),
        ready=draw(st.sampled_from([True, True, True, False])),
        schedulable=draw(st.sampled_from([True, True, True, False])),
        uid=draw(st.sampled_from([f"uid-{name}", f"uid-{name}", f"new-{name}"])),
    )


OBSERVATIONS = st.composite(observation)()


@dataclass
class Owner:
    """A deployment as it really behaves: rising versions, new keys, and it starts only what it was granted."""

    version: int = 0
    keys: int = 0
    items: dict[str, Item] = field(default_factory=dict)
    started: dict[str, str] = field(default_factory=dict)  # hold id → key
    said: list[Want] = field(default_factory=list)


class LedgerMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(site="tokyo")
        self.owners = {o: Owner() for o in ("a", "b", "c")}
        self.seen: dict[str, Hold] = {}
        self.over: list[tuple[str, str]] = []  # owner, key of every hold that was released

    @initialize()
    def the_site_is_seen(self) -> None:
        self.ledger = rules.observed(self.ledger, Inventory(nodes=tuple(node(n, product="H") for n in NODES)))

    def apply(self, fact: Callable[[Ledger], Ledger], *, frees: str = "", silences: str = "") -> None:
        """Take a fact, twice; `frees` is the hold and `silences` the owner whose word it is."""
        before, after = self.ledger, fact(self.ledger)
        assert fact(after) is after, "the same fact twice changes nothing"
        assert fact(before) == after, "the same fact gives the same ledger"
        assert after is before or after.revision == before.revision + 1
        self._check_vanished(before, after, frees, silences)
        self._check_granted(before, after)
        told = set(rules.changed(before, after))
        for owner in self.owners:
            old, new = rules.grant(before, owner), rules.grant(after, owner)
            assert owner in told or (old.holds, old.want_version) == (new.holds, new.want_version)
        self.ledger = after

    def _check_vanished(self, before: Ledger, after: Ledger, frees: str, silences: str) -> None:
        kept = {h.id for h in after.holds}
        for hold in before.holds:
            if hold.id in kept:
                continue
            assert hold.id == frees or (hold.owner == silences and not hold.started)

    def _check_granted(self, before: Ledger, after: Ledger) -> None:
        """S1, S2, S3 at grant time, and generations that rise."""
        new = [h for h in after.holds if h.generation > before.generation]
        assert [h.generation for h in new] == list(range(before.generation + 1, after.generation + 1))
        for hold in new:
            item = self._item(after, hold)
            found = after.inventory.node(hold.node)
            assert found is not None
            devices = found.of(GPU)
            assert devices is not None
            assert found.ready
            assert found.schedulable
            assert hold.node_uid == found.uid
            assert found.uid not in [c.node_uid for c in after.closures]
            assert item.product in ("", devices.product)
            assert devices.allocatable >= item.count
            assert hold.count == (item.count if takes_devices(item) else 0)
            assert (hold.owner, hold.key) not in self.over, "a released key is never granted again"
            if hold.count:
                assert self._held(after, hold.node) <= devices.allocatable - devices.foreign

    def _item(self, ledger: Ledger, hold: Hold) -> Item:
        want = next(w for w in ledger.wants if w.owner == hold.owner)
        return next(i for i in want.items if i.key == hold.key)

    def _held(self, ledger: Ledger, name: str) -> int:
        return sum(h.count for h in ledger.holds if h.node == name)

    def say(self, name: str) -> None:
        owner = self.owners[name]
        owner.version += 1
        want = Want(owner=name, version=owner.version, items=tuple(owner.items.values()), started=tuple(owner.started))
        owner.said.append(want)
        self.apply(lambda ledger: rules.wanted(ledger, want), silences=name)

    @rule(name=OWNERS, items=st.lists(ITEMS, min_size=1, max_size=3), prompt=st.booleans())
    def want_more(self, name: str, items: list[Item], prompt: bool) -> None:
        """A prompt owner starts what it was granted at once."""
        owner = self.owners[name]
        for item in items:
            owner.keys += 1
            key = f"k{owner.keys}"
            owner.items[key] = replace(item, key=key)
        self.say(name)
        if prompt and (fresh := self._fresh(name)):
            owner.started |= {h.id: h.key for h in fresh}
            self.say(name)

    def _fresh(self, name: str) -> list[Hold]:
        """What an owner was granted, still wants and has not started."""
        items = self.owners[name].items
        return [h for h in rules.owned(self.ledger, name) if h.key in items and not h.started]

    def _running(self) -> list[tuple[str, str]]:
        return [(name, hold) for name, owner in self.owners.items() for hold in owner.started]

    @precondition(lambda self: any(o.items for o in self.owners.values()))
    @rule(data=st.data())
    def want_less(self, data: st.DataObject) -> None:
        """Nobody else is worse off for it: they keep what they hold, and none begins to wait."""
        name = data.draw(st.sampled_from([n for n, o in self.owners.items() if o.items]))
        owner = self.owners[name]
        for key in data.draw(st.lists(st.sampled_from(sorted(owner.items)), min_size=1, unique=True)):
            del owner.items[key]
        before = self.ledger
        self.say(name)
        for hold in before.holds:
            assert hold.owner == name or hold in self.ledger.holds
        waited = {(q.owner, q.waiting.key) for q in before.queue}
        assert all((q.owner, q.waiting.key) in waited for q in self.ledger.queue if q.owner != name)

    @precondition(lambda self: any(self._fresh(n) for n in self.owners))
    @rule(data=st.data())
    def start_what_was_granted(self, data: st.DataObject) -> None:
        hold = data.draw(st.sampled_from([h for n in self.owners for h in self._fresh(n)]))
        self.owners[hold.owner].started[hold.id] = hold.key
        self.say(hold.owner)

    @precondition(lambda self: self._running())
    @rule(data=st.data(), heard=st.booleans())
    def a_replica_is_gone(self, data: st.DataObject, heard: bool) -> None:
        """Site and owner hear of it in any order."""
        name, hold = data.draw(st.sampled_from(self._running()))
        owner = self.owners[name]
        key = owner.started[hold]
        if heard:
            owner.items.pop(key, None)
        self.over.append((name, key))
        self.apply(lambda ledger: rules.released(ledger, hold), frees=hold)
        self.say(name)
        owner.items.pop(key, None)
        del owner.started[hold]

    @rule(generation=st.integers(0, 40))
    def a_release_of_something_unknown(self, generation: int) -> None:
        hold = f"h{generation}"
        if any(h.id == hold for h in self.ledger.holds):
            hold = f"h{self.ledger.generation + 1}"
        before = self.ledger
        self.apply(lambda ledger: rules.released(ledger, hold))
        assert self.ledger is before

    @precondition(lambda self: self.ledger.wants)
    @rule(data=st.data())
    def an_old_want_arrives_late(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from([w.owner for w in self.ledger.wants]))
        want = data.draw(st.sampled_from(self.owners[name].said))
        before = self.ledger
        self.apply(lambda ledger: rules.wanted(ledger, want))
        assert self.ledger is before

    @rule(inventory=OBSERVATIONS)
    def look_at_the_nodes(self, inventory: Inventory) -> None:
        before = self.ledger
        self.apply(lambda ledger: rules.observed(ledger, inventory))
        assert {h.id for h in before.holds} <= {h.id for h in self.ledger.holds}
        if not inventory.nodes:
            assert self.ledger.inventory == before.inventory

    @rule(name=st.sampled_from(NODES), hours=st.integers(1, 5))
    def a_node_is_taken_back(self, name: str, hours: int) -> None:
        closure = Closure(node=name, node_uid=f"uid-{name}", by=NOON + timedelta(hours=hours))
        old = rules.closure_of(self.ledger, closure.node_uid)
        self.apply(lambda ledger: rules.closed(ledger, closure))
        found = rules.closure_of(self.ledger, closure.node_uid)
        assert found is not None
        assert found.by == min(closure.by, old.by if old else closure.by)

    @rule(name=st.sampled_from(NODES))
    def a_node_stays_after_all(self, name: str) -> None:
        self.apply(lambda ledger: rules.reopened(ledger, f"uid-{name}"))

    @rule(name=OWNERS)
    def an_owner_is_no_more(self, name: str) -> None:
        """It may come back, and then takes over what still runs."""
        self.apply(lambda ledger: rules.forgotten(ledger, name), silences=name)
        owner = self.owners[name]
        owner.items.clear()
        assert not any(q.owner == name for q in self.ledger.queue)
        assert all(h.leaving for h in rules.owned(self.ledger, name))

    @invariant()
    def holds_are_what_they_were(self) -> None:
        for hold in self.ledger.holds:
            first = self.seen.setdefault(hold.id, hold)
            assert replace(hold, started=first.started, leaving=first.leaving) == first
            assert hold.started or not self.seen[hold.id].started
        keys = [(h.owner, h.key) for h in self.ledger.holds]
        assert len(keys) == len(set(keys))
        assert [h.generation for h in self.ledger.holds] == sorted(h.generation for h in self.ledger.holds)

    @invariant()
    def free_and_held_never_overlap(self) -> None:
        for found in self.ledger.inventory.nodes:
            devices = found.of(GPU)
            assert devices is not None
            free, held = rules.free(self.ledger, found.name, GPU), self._held(self.ledger, found.name)
            room = max(0, devices.allocatable - devices.foreign)
            assert free == max(0, room - held)
            alarmed = any(f"node {found.name} holds {held} " in a for a in rules.alarms(self.ledger))
            assert alarmed == (held > room)

    @invariant()
    def everything_wanted_is_held_or_waits_or_is_over(self) -> None:
        held = [(h.owner, h.key) for h in self.ledger.holds if not h.leaving]
        waiting = [(q.owner, q.waiting.key) for q in self.ledger.queue]
        over = [(s.owner, s.key) for s in self.ledger.spent]
        wanted = [(w.owner, i.key) for w in self.ledger.wants for i in w.items]
        assert sorted(wanted) == sorted([*held, *waiting, *(o for o in over if o in wanted)])

    @invariant()
    def nothing_waits_for_what_fits(self) -> None:
        """Liveness: a waiting engine fits nowhere, or only where a node is kept for one that comes first."""
        for queued in self.ledger.queue:
            item = self._queued_item(queued)
            if not takes_devices(item) or not self._fitting(item):
                continue
            assert queued.waiting.code == "Reserved"
            assert any(self._comes_first(other, item, queued) for other in self.ledger.queue)

    def _queued_item(self, queued: Queued) -> Item:
        want = next(w for w in self.ledger.wants if w.owner == queued.owner)
        return next(i for i in want.items if i.key == queued.waiting.key)

    def _comes_first(self, other: Queued, item: Item, queued: Queued) -> bool:
        earlier = self._queued_item(other)
        rank = (not earlier.minimum, -earlier.priority, other.since)
        return other != queued and takes_devices(earlier) and rank <= (not item.minimum, -item.priority, queued.since)

    def _fitting(self, item: Item) -> list[str]:
        """The open nodes of the right product with enough free devices."""
        return [n for n in self._open(item) if rules.free(self.ledger, n, GPU) >= item.count]

    def _open(self, item: Item) -> dict[str, int]:
        """Name and allocatable of the nodes that may take the item."""
        closed = [c.node_uid for c in self.ledger.closures]
        return {
            n.name: n.devices[0].allocatable
            for n in self.ledger.inventory.nodes
            if n.ready
            and n.schedulable
            and n.uid not in closed
            and item.product in ("", n.devices[0].product)
            and n.devices[0].allocatable >= item.count
        }

    @invariant()
    def staged_places_wait_only_when_every_node_is_full_of_their_owner(self) -> None:
        for queued in self.ledger.queue:
            item = self._queued_item(queued)
            if takes_devices(item):
                continue
            for name, allocatable in self._open(item).items():
                places = sum(1 for h in rules.owned(self.ledger, queued.owner) if h.node == name and not h.leaving)
                assert places > 0
                assert allocatable < item.count * (places + 1)


LedgerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLedger = LedgerMachine.TestCase
