"""Best fit: which node takes one replica, or one node's worth of staged weights.

A `Floor` is a site's nodes while one settling goes on. Only open nodes take anything: ready, schedulable, not
being taken back. A replica's devices are whole on one node. An item that may choose among products leaves
those that others insist on to them, while it can. Sizes are allocatable, never labels or capacity;
what others use is not free. Slices of a device (MIG, time-slicing) never serve a replica of several.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush

from sunfleet.holds import Closure, Hold, Item
from sunfleet.inventory import Devices, Inventory, Node
from sunfleet.warmth import Warmth

_ANYWHERE = 1 << 30  # "devices" of a node for a replica that needs none


@dataclass(slots=True)
class Spot:
    """One resource of one node, and what is left of it."""

    node: Node
    product: str
    allocatable: int
    room: int  # allocatable minus what others use
    free: int  # room minus what is held; never negative
    leaving: int  # held by replicas that are on their way out
    shut: str = ""  # the code of why it takes nothing new
    kept: bool = False  # for a replica that comes first


@dataclass(slots=True)
class _Pool:
    """The open spots of one resource and product, by what is free and by how little is staged there."""

    spots: dict[str, Spot] = field(default_factory=dict)
    by_free: dict[int, list[str]] = field(default_factory=dict)  # heaps of names; stale ones are skipped
    by_size: dict[int, list[tuple[int, int, str]]] = field(default_factory=dict)  # (staged, -free, name)
    free: int = 0  # devices
    insisted: int = 0  # devices that items which take no other product still wait for

    def tightest(self, count: int) -> Spot | None:
        """The spot with the fewest free devices that still fits; the first by name among equals."""
        for free in sorted(f for f in self.by_free if f >= count):
            names = self.by_free[free]
            while names:
                spot = self.spots[names[0]]
                if spot.free == free and not spot.kept:
                    return spot
                heappop(names)
        return None

    def moved(self, spot: Spot) -> None:
        heappush(self.by_free.setdefault(spot.free, []), spot.node.name)


def sliced(resource: str, product: str = "") -> bool:
    """Whether these are parts of devices: several of them are no more than one device."""
    return resource.endswith(".shared") or "/mig-" in resource or product.endswith("-SHARED") or "MIG-" in product


def takes_devices(item: Item) -> bool:
    """Whether the item holds devices: an engine does, also asleep; staged weights do not."""
    return item.rung.height > Warmth.STAGED.height and item.resource != ""


class Floor:
    """A site's nodes while items are placed on them. `items` are all that will be asked for, each once."""

    def __init__(
        self,
        inventory: Inventory,
        holds: Iterable[Hold],
        closures: Iterable[Closure],
        items: Iterable[Item],
    ) -> None:
        self._known = bool(inventory.nodes)
        self._held: dict[tuple[str, str], int] = {}
        self._leaving: dict[tuple[str, str], int] = {}
        self._places: dict[str, dict[str, int]] = {}  # owner → node → places that stay
        self._warm: dict[str, dict[str, int]] = {}  # owner → node → staged places
        self._staged: dict[str, int] = {}  # node → staged places of anyone
        for hold in holds:
            self._count(hold)
        self._spots: dict[str, dict[str, Spot]] = {}
        self._pools: dict[str, dict[str, _Pool]] = {}
        closed = {c.node_uid for c in closures}
        asked = tuple(items)
        for resource in dict.fromkeys(i.resource for i in asked):
            self._survey(resource, inventory, closed)
        for item in asked:
            self._insist(item, item.count)

    def _count(self, hold: Hold) -> None:
        at = (hold.node, hold.resource)
        self._held[at] = self._held.get(at, 0) + hold.count
        if hold.leaving:
            self._leaving[at] = self._leaving.get(at, 0) + hold.count
            return
        _add(self._places.setdefault(hold.owner, {}), hold.node)
        if hold.rung is Warmth.STAGED:
            _add(self._warm.setdefault(hold.owner, {}), hold.node)
            _add(self._staged, hold.node)

    def _survey(self, resource: str, inventory: Inventory, closed: set[str]) -> None:
        """Look at every node's devices of one resource."""
        spots = self._spots.setdefault(resource, {})
        pools = self._pools.setdefault(resource, {})
        for node in inventory.nodes:
            devices = node.of(resource) if resource else Devices(resource="", allocatable=_ANYWHERE)
            if devices is None or devices.allocatable <= 0:
                continue
            at = (node.name, resource)
            room = max(0, devices.allocatable - devices.foreign)
            spot = spots[node.name] = Spot(
                node=node,
                product=devices.product,
                allocatable=devices.allocatable,
                room=room,
                free=max(0, room - self._held.get(at, 0)),
                leaving=self._leaving.get(at, 0),
                shut=_shut(node, closed),
            )
            if not spot.shut:
                pool = pools.setdefault(spot.product, _Pool())
                pool.spots[node.name] = spot
                pool.free += spot.free
                pool.moved(spot)

    def _insist(self, item: Item, count: int) -> None:
        """Note what an item that takes one product alone waits for."""
        pool = self._pools[item.resource].get(item.product) if item.product and takes_devices(item) else None
        if pool is not None:
            pool.insisted += count

    def place(self, owner: str, item: Item) -> Node | None:
        """Take the best node for an item, or None when nothing fits now."""
        self._insist(item, -item.count)
        spot = self._for_devices(owner, item) if takes_devices(item) else self._for_weights(owner, item)
        if spot is None:
            return None
        self._take(owner, item, spot)
        return spot.node

    def keep(self, item: Item) -> None:
        """Keep the node where the item would fit first free of everything that comes after it."""
        wide = [s for s in self._open(item) if s.room >= item.count and not s.kept]
        if wide:
            first = min(wide, key=lambda s: (-(s.free + s.leaving), -s.free, s.node.name))
            first.kept = True

    def _for_devices(self, owner: str, item: Item) -> Spot | None:
        """Best fit, first among the nodes that have the weights; last where others have no choice."""
        spots = self._spots.get(item.resource, {})
        warm = dict.fromkeys((*item.prefer, *self._warm.get(owner, {})))
        near = [s for n in warm if (s := spots.get(n)) and _suits(s, item) and s.free >= item.count and not s.kept]
        if near:
            order = {name: at for at, name in enumerate(warm)}
            return min(near, key=lambda s: (s.free, order[s.node.name]))
        found = [
            (pool.free - pool.insisted < item.count, spot.free, spot.node.name, spot)
            for pool in self._pools_of(item)
            if (spot := pool.tightest(item.count)) is not None
        ]
        return min(found, key=lambda f: f[:3])[3] if found else None

    def _for_weights(self, owner: str, item: Item) -> Spot | None:
        """A node that could hold the replica: of its own first, then shared with the owner's other places."""
        own = self._places.get(owner, {})
        spots = self._spots.get(item.resource, {})
        for name in item.prefer:
            known = spots.get(name)
            if known is not None and name not in own and _suits(known, item):
                return known
        fresh = [s for p in self._pools_of(item) if (s := self._least_staged(p, item.count, own)) is not None]
        if fresh:
            return min(fresh, key=self._staging_rank)
        shared = [
            s for n in own if (s := spots.get(n)) and _suits(s, item) and s.allocatable >= item.count * (own[n] + 1)
        ]
        return min(shared, key=lambda s: (own[s.node.name], self._staging_rank(s)), default=None)

    def _least_staged(self, pool: _Pool, count: int, own: dict[str, int]) -> Spot | None:
        if not pool.by_size:
            for spot in pool.spots.values():
                heappush(pool.by_size.setdefault(spot.allocatable, []), self._staging_rank(spot))
        heaps = (heap for size, heap in sorted(pool.by_size.items()) if size >= count)
        found = [best for heap in heaps if (best := self._first_but(pool, heap, own)) is not None]
        return min(found, key=self._staging_rank, default=None)

    def _first_but(self, pool: _Pool, heap: list[tuple[int, int, str]], own: dict[str, int]) -> Spot | None:
        """The first spot by rank that is not the owner's. Ranks only rise, so a stale entry is put back."""
        aside = []
        found = None
        while heap and found is None:
            entry = heappop(heap)
            spot = pool.spots[entry[2]]
            aside.append(self._staging_rank(spot))
            if aside[-1] != entry:
                heappush(heap, aside.pop())
            elif entry[2] not in own:
                found = spot
        for entry in aside:
            heappush(heap, entry)
        return found

    def _staging_rank(self, spot: Spot) -> tuple[int, int, str]:
        return (self._staged.get(spot.node.name, 0), -spot.free, spot.node.name)

    def _take(self, owner: str, item: Item, spot: Spot) -> None:
        _add(self._places.setdefault(owner, {}), spot.node.name)
        if takes_devices(item):
            pool = self._pools[item.resource][spot.product]
            spot.free -= item.count
            pool.free -= item.count
            pool.moved(spot)
        if item.rung is Warmth.STAGED:
            _add(self._warm.setdefault(owner, {}), spot.node.name)
            _add(self._staged, spot.node.name)

    def _pools_of(self, item: Item) -> list[_Pool]:
        return [pool for product, pool in self._pools.get(item.resource, {}).items() if product_suits(product, item)]

    def _open(self, item: Item) -> Iterator[Spot]:
        return (s for p in self._pools_of(item) for s in p.spots.values())

    def known(self) -> bool:
        """Whether any node was ever seen."""
        return self._known

    def spots(self, resource: str) -> tuple[Spot, ...]:
        """Every node's devices of a resource, also of nodes that take nothing new."""
        return tuple(self._spots.get(resource, {}).values())


def _add(counts: dict[str, int], key: str) -> None:
    counts[key] = counts.get(key, 0) + 1


def _shut(node: Node, closed: set[str]) -> str:
    if node.uid in closed:
        return "NodesClosed"
    return "" if node.ready and node.schedulable else "NodesNotReady"


def product_suits(product: str, item: Item) -> bool:
    wanted = not item.product or product == item.product
    return wanted and not (item.count > 1 and sliced(item.resource, product))


def _suits(spot: Spot, item: Item) -> bool:
    return not spot.shut and product_suits(spot.product, item) and spot.allocatable >= item.count
