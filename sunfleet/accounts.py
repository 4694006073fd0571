"""What a ledger says: each owner's grant, what is free, what is wrong. Nothing here changes a ledger."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from sunfleet.holds import Closure, Grant, Held, Hold, Ledger, Queued
from sunfleet.inventory import Devices
from sunfleet.placement import takes_devices

K = TypeVar("K", str, tuple[str, str])
V = TypeVar("V")


def owners(ledger: Ledger) -> tuple[str, ...]:
    """Everyone who wants or holds something, or once said so, sorted."""
    return tuple(sorted({w.owner for w in ledger.wants} | {h.owner for h in ledger.holds}))


def owned(ledger: Ledger, owner: str) -> tuple[Hold, ...]:
    """An owner's holds, also those that are leaving, by generation."""
    return tuple(h for h in ledger.holds if h.owner == owner)


def closure_of(ledger: Ledger, node_uid: str) -> Closure | None:
    """The take-back of a machine, if there is one."""
    return next((c for c in ledger.closures if c.node_uid == node_uid), None)


def grant(ledger: Ledger, owner: str) -> Grant:
    """All that one owner has and waits for. An owner that is not known has nothing, at want version 0."""
    deadlines = _deadlines(ledger)
    return Grant(
        version=ledger.revision,
        want_version=next((w.version for w in ledger.wants if w.owner == owner), 0),
        holds=tuple(_held(h, deadlines) for h in owned(ledger, owner)),
        waiting=tuple(q.waiting for q in ledger.queue if q.owner == owner),
    )


def grants(ledger: Ledger) -> dict[str, Grant]:
    """Every owner's grant, by owner, sorted."""
    versions = {w.owner: w.version for w in ledger.wants}
    holds, waiting = _by_owner(ledger)
    return {
        owner: Grant(
            version=ledger.revision,
            want_version=versions.get(owner, 0),
            holds=tuple(holds.get(owner, ())),
            waiting=tuple(q.waiting for q in waiting.get(owner, ())),
        )
        for owner in owners(ledger)
    }


def changed(before: Ledger, after: Ledger) -> tuple[str, ...]:
    """The owners whose grant differs, sorted; its revision does not count.

    Nor does the wording of a wait: its numbers move with every hold at the site, and telling each waiting
    owner of each would be a storm. Its code counts.
    """
    if before is after:
        return ()
    found = _differing({w.owner: w.version for w in before.wants}, {w.owner: w.version for w in after.wants})
    found |= {owner for owner, _ in _differing(_waits(before), _waits(after))}
    old, new = {h.id: h for h in before.holds}, {h.id: h for h in after.holds}
    found |= {(new.get(i) or old[i]).owner for i in _differing(old, new)}
    moved = _differing(_deadlines(before), _deadlines(after))
    found |= {h.owner for h in after.holds if h.node_uid in moved}
    return tuple(sorted(found))


def free(ledger: Ledger, node: str, resource: str) -> int:
    """Devices of a known node that nobody uses or holds; never negative, 0 for what is not known."""
    found = ledger.inventory.node(node)
    devices = found.of(resource) if found else None
    return max(0, _room(devices) - _held_on(ledger).get((node, resource), 0)) if devices else 0


def summary(ledger: Ledger) -> tuple[dict[str, int], dict[str, int]]:
    """Devices by resource: usable, and held.

    Usable is what open nodes have for us, and on other known nodes what we still hold. Held may exceed it
    where allocatable fell: `alarms` says so.
    """
    held = _held_on(ledger)
    closed = {c.node_uid for c in ledger.closures}
    usable: dict[str, int] = {}
    for node in ledger.inventory.nodes:
        for devices in node.devices:
            room = _room(devices)
            if node.uid in closed or not (node.ready and node.schedulable):
                room = min(room, held.get((node.name, devices.resource), 0))
            usable[devices.resource] = usable.get(devices.resource, 0) + room
    taken: dict[str, int] = {}
    for (_, resource), count in sorted(held.items()):
        taken[resource] = taken.get(resource, 0) + count
    return usable, taken


def alarms(ledger: Ledger) -> tuple[str, ...]:
    """What somebody should look at, one sentence each, sorted."""
    found = [*_overcommitted(ledger), *_misplaced(ledger)]
    if ledger.blind:
        known = len(ledger.inventory.nodes)
        found.append(f"the API server lists no nodes: keeping the {known} seen last")
    return tuple(sorted(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Stranded:
    """Free devices of a node that are too few for every replica that is wanted of their kind."""

    node: str
    resource: str
    free: int
    smallest: int  # what the smallest such replica needs


def stranded(ledger: Ledger) -> tuple[Stranded, ...]:
    """Devices that nothing wanted can use, by node: a capacity signal, not a fault."""
    smallest = _smallest_asks(ledger)
    closed = {c.node_uid for c in ledger.closures}
    held = _held_on(ledger)
    found = []
    for node in ledger.inventory.nodes:
        if node.uid in closed or not (node.ready and node.schedulable):
            continue
        for devices in node.devices:
            named = smallest.get((devices.resource, devices.product))
            needed = min((n for n in (named, smallest.get((devices.resource, ""))) if n), default=0)
            left = max(0, _room(devices) - held.get((node.name, devices.resource), 0))
            if 0 < left < needed:
                found.append(Stranded(node=node.name, resource=devices.resource, free=left, smallest=needed))
    return tuple(found)


def _smallest_asks(ledger: Ledger) -> dict[tuple[str, str], int]:
    """The fewest devices that a wanted replica needs, by resource and product."""
    found: dict[tuple[str, str], int] = {}
    for want in ledger.wants:
        for item in want.items:
            if takes_devices(item):
                kind = (item.resource, item.product)
                found[kind] = min(item.count, found.get(kind, item.count))
    return found


def _room(devices: Devices) -> int:
    return max(0, devices.allocatable - devices.foreign)


def _held_on(ledger: Ledger) -> dict[tuple[str, str], int]:
    held: dict[tuple[str, str], int] = {}
    for hold in ledger.holds:
        if hold.count:
            held[hold.node, hold.resource] = held.get((hold.node, hold.resource), 0) + hold.count
    return held


def _deadlines(ledger: Ledger) -> dict[str, Closure]:
    return {c.node_uid: c for c in ledger.closures}


def _held(hold: Hold, closures: dict[str, Closure]) -> Held:
    closure = closures.get(hold.node_uid)
    return Held(hold=hold, retire_by=closure.by if closure else None)


def _by_owner(ledger: Ledger) -> tuple[dict[str, list[Held]], dict[str, list[Queued]]]:
    closures = _deadlines(ledger)
    holds: dict[str, list[Held]] = {}
    for hold in ledger.holds:
        holds.setdefault(hold.owner, []).append(_held(hold, closures))
    waiting: dict[str, list[Queued]] = {}
    for queued in ledger.queue:
        waiting.setdefault(queued.owner, []).append(queued)
    return holds, waiting


def _waits(ledger: Ledger) -> dict[tuple[str, str], str]:
    """(owner, key) → code of everything that waits."""
    return {(q.owner, q.waiting.key): q.waiting.code for q in ledger.queue}


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> set[K]:
    """The keys whose values are not the same in both."""
    found = {k for k, v in new.items() if (was := old.get(k)) is not v and was != v}
    return found | {k for k in old if k not in new}


def _overcommitted(ledger: Ledger) -> list[str]:
    """Holds beyond what their node offers now: nothing is taken away, somebody is told."""
    nodes = {n.name: n for n in ledger.inventory.nodes}
    found = []
    for (name, resource), count in _held_on(ledger).items():
        devices = nodes[name].of(resource) if name in nodes else None
        if name in nodes and devices is None:
            found.append(f"node {name} holds {count} {resource} but offers none")
        elif devices is not None and count > _room(devices):
            found.append(
                f"node {name} holds {count} {resource} but has {_room(devices)}: "
                f"allocatable {devices.allocatable}, others use {devices.foreign}"
            )
    return found


def _misplaced(ledger: Ledger) -> list[str]:
    """Holds on machines that are not there any more."""
    uids = {n.name: n.uid for n in ledger.inventory.nodes}
    counts: dict[tuple[str, str], int] = {}
    for hold in ledger.holds:
        if uids.get(hold.node) != hold.node_uid:
            counts[hold.node, hold.node_uid] = counts.get((hold.node, hold.node_uid), 0) + 1
    return [
        f"node {name} is {'another machine now' if name in uids else 'gone'}: "
        f"{count} {'hold waits' if count == 1 else 'holds wait'} until their pods are known to be gone"
        for (name, _), count in sorted(counts.items())
    ]
