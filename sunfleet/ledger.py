"""A site's ledger: who holds which bays, and who waits. Pure; one workflow owns it, nobody else changes it.

Every rule takes a ledger and a fact and gives the ledger after it; the same fact twice changes nothing. Then
it *settles*: what waits is placed in one total order: minimums first, then higher priority, engines before
weights, first come first served, of those that came together the larger ones, then by owner and key. The
rules that follow from that order:

- Nothing held is ever moved or taken away. A hold ends by its owner's word alone: a want without it while
  nothing was started on it, or `released` when its pods are gone; or when the owner is no more (`forgotten`).
  On a node that is taken back the owner learns `retire_by`, and lets the place go for a new one.
- Smaller items may pass a larger one that waits, but not on the node where it would fit first: that node is
  kept for the first waiting item of each kind, so that it is never starved.
- A released key is never granted again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from sunfleet.accounts import alarms as alarms
from sunfleet.accounts import changed as changed
from sunfleet.accounts import closure_of as closure_of
from sunfleet.accounts import free as free
from sunfleet.accounts import grant as grant
from sunfleet.accounts import grants as grants
from sunfleet.accounts import owned as owned
from sunfleet.accounts import owners as owners
from sunfleet.accounts import stranded as stranded
from sunfleet.accounts import summary as summary
from sunfleet.holds import Closure as Closure
from sunfleet.holds import Grant as Grant
from sunfleet.holds import Held as Held
from sunfleet.holds import Hold as Hold
from sunfleet.holds import Item as Item
from sunfleet.holds import Ledger as Ledger
from sunfleet.holds import Queued as Queued
from sunfleet.holds import Spent as Spent
from sunfleet.holds import Waiting as Waiting
from sunfleet.holds import Want as Want
from sunfleet.inventory import Inventory, Node
from sunfleet.placement import Floor, takes_devices
from sunfleet.refusals import Refusal, why_not

ABSENT_CLOSURES = 200  # closures of nodes that are gone; older ones are dropped, by deadline


def wanted(ledger: Ledger, want: Want) -> Ledger:
    """Replace all that an owner wants. An equal or lower version changes nothing."""
    return wanted_all(ledger, (want,))


def wanted_all(ledger: Ledger, wants: Iterable[Want]) -> Ledger:
    """Replace what several owners want, and decide once: what one lets go another may have."""
    known = {w.owner: w for w in ledger.wants}
    news = {
        w.owner: replace(w, items=_distinct(w))
        for w in wants
        if w.owner not in known or w.version > known[w.owner].version
    }
    if not news:
        return ledger
    keys = {owner: {i.key for i in w.items} for owner, w in news.items()}
    holds = (_hold_under(h, news[h.owner], keys[h.owner]) if h.owner in news else h for h in ledger.holds)
    return _settled(
        replace(
            ledger,
            wants=tuple(w for _, w in sorted((known | news).items())),
            holds=tuple(h for h in holds if h is not None),
            spent=tuple(s for s in ledger.spent if s.owner not in news or s.key in keys[s.owner]),
        )
    )


def _distinct(want: Want) -> tuple[Item, ...]:
    """The items, the first of each doubled key."""
    return tuple({i.key: i for i in reversed(want.items)}.values())[::-1]


def _hold_under(hold: Hold, want: Want, keys: set[str]) -> Hold | None:
    """A hold under its owner's new want; None when it is let go, which only what was not begun is."""
    begun, stays = hold.started or hold.id in want.started, hold.key in keys
    if not (begun or stays):
        return None
    return (
        hold if (hold.started, hold.leaving) == (begun, not stays) else replace(hold, started=begun, leaving=not stays)
    )


def released(ledger: Ledger, hold_id: str) -> Ledger:
    """The hold's pods are gone, by uid: it is free. An unknown id changes nothing."""
    gone = next((h for h in ledger.holds if h.id == hold_id), None)
    if gone is None:
        return ledger
    spent = (*ledger.spent, Spent(owner=gone.owner, key=gone.key))
    return _settled(
        replace(
            ledger,
            holds=tuple(h for h in ledger.holds if h.id != hold_id),
            spent=tuple(sorted(spent, key=lambda s: (s.owner, s.key))),
        )
    )


def observed(ledger: Ledger, inventory: Inventory) -> Ledger:
    """Take a whole observation. One without nodes removes nothing: the last one is kept, with an alarm.

    A node that is missing takes nothing new; its holds stay until their pods are known to be gone.
    """
    if not inventory.nodes:
        if ledger.blind or not ledger.inventory.nodes:
            return ledger
        return replace(ledger, blind=True, revision=ledger.revision + 1)
    inventory = replace(inventory, nodes=tuple(sorted(inventory.nodes, key=lambda n: n.name)))
    if inventory == ledger.inventory and not ledger.blind:
        return ledger
    seen = replace(ledger, inventory=inventory, blind=False)
    return _settled(replace(seen, closures=_pruned(seen)))


def closed(ledger: Ledger, closure: Closure) -> Ledger:
    """A node's owner takes it back: nothing new is placed there. The earliest `by` wins."""
    old = closure_of(ledger, closure.node_uid)
    if old is not None and old.by <= closure.by:
        return ledger
    others = (c for c in ledger.closures if c.node_uid != closure.node_uid)
    return _settled(replace(ledger, closures=tuple(sorted((*others, closure), key=lambda c: c.node_uid))))


def reopened(ledger: Ledger, node_uid: str) -> Ledger:
    """The node stays after all. One that is not closed changes nothing."""
    if closure_of(ledger, node_uid) is None:
        return ledger
    return _settled(replace(ledger, closures=tuple(c for c in ledger.closures if c.node_uid != node_uid)))


def forgotten(ledger: Ledger, owner: str) -> Ledger:
    """The owner is no more: it wants nothing, and what it has not started is free. The rest waits for `released`."""
    old = _want_of(ledger, owner)
    holds = tuple(
        replace(h, leaving=True) if h.owner == owner else h for h in ledger.holds if h.owner != owner or h.started
    )
    left = tuple(h.id for h in holds if h.owner == owner)
    last = (replace(old, items=(), started=left),) if old is not None and left else ()
    after = replace(
        ledger,
        wants=(*(w for w in ledger.wants if w.owner < owner), *last, *_after(ledger, owner)),
        holds=holds,
        spent=tuple(s for s in ledger.spent if s.owner != owner),
    )
    return ledger if after == ledger else _settled(after)


def _want_of(ledger: Ledger, owner: str) -> Want | None:
    return next((w for w in ledger.wants if w.owner == owner), None)


def _after(ledger: Ledger, owner: str) -> tuple[Want, ...]:
    return tuple(w for w in ledger.wants if w.owner > owner)


def _pruned(ledger: Ledger) -> tuple[Closure, ...]:
    """Closures of present nodes, and the latest of those that are gone: machines come and go for years."""
    present = {n.uid for n in ledger.inventory.nodes} | {h.node_uid for h in ledger.holds}
    absent = [c for c in ledger.closures if c.node_uid not in present]
    if len(absent) <= ABSENT_CLOSURES:
        return ledger.closures
    kept = {c.node_uid for c in sorted(absent, key=lambda c: (c.by, c.node_uid))[-ABSENT_CLOSURES:]}
    return tuple(c for c in ledger.closures if c.node_uid in present or c.node_uid in kept)


def _settled(ledger: Ledger) -> Ledger:
    """The next revision, with everything placed that can be."""
    ledger = replace(ledger, revision=ledger.revision + 1)
    waiting = _in_order(ledger)
    if not waiting:
        return replace(ledger, queue=()) if ledger.queue else ledger
    floor = Floor(ledger.inventory, ledger.holds, ledger.closures, (i for _, i, _ in waiting))
    holds, left, kept = list(ledger.holds), [], dict[tuple[str, str], None]()
    for owner, item, since in waiting:
        node = floor.place(owner, item)
        if node is not None:
            holds.append(_hold(ledger.generation + 1 + len(holds) - len(ledger.holds), owner, item, node))
            continue
        left.append((owner, item, since))
        kind = (item.resource, item.product)
        if takes_devices(item) and kind not in kept:
            kept[kind] = None
            floor.keep(item)
    return replace(
        ledger,
        generation=ledger.generation + len(holds) - len(ledger.holds),
        holds=tuple(holds),
        queue=_queue(floor, left, ledger.site),
    )


def _in_order(ledger: Ledger) -> list[tuple[str, Item, int]]:
    """Owner, item and arrival of what has no hold, in the order of placement."""
    had = {(h.owner, h.key) for h in ledger.holds} | {(s.owner, s.key) for s in ledger.spent}
    came = {(q.owner, q.waiting.key): q.since for q in ledger.queue}
    waiting = [
        (w.owner, i, came.get((w.owner, i.key), ledger.revision))
        for w in ledger.wants
        for i in w.items
        if (w.owner, i.key) not in had
    ]
    waiting.sort(key=_rank)
    return waiting


def _rank(waiting: tuple[str, Item, int]) -> tuple[object, ...]:
    """What comes first. Among those that came together the larger ones, and those that cannot choose, go first."""
    owner, item, since = waiting
    order = (not item.minimum, -item.priority, -item.rung.height, since)
    return (*order, -item.count, not item.product, owner, item.key)


def _hold(generation: int, owner: str, item: Item, node: Node) -> Hold:
    return Hold(
        id=f"h{generation}",
        generation=generation,
        owner=owner,
        key=item.key,
        rung=item.rung,
        node=node.name,
        node_uid=node.uid,
        resource=item.resource,
        count=item.count if takes_devices(item) else 0,
    )


def _queue(floor: Floor, left: list[tuple[str, Item, int]], site: str) -> tuple[Queued, ...]:
    """What still waits, each with its reason; equal asks have equal reasons, found once."""
    found: dict[tuple[str, str, int, bool], Refusal] = {}
    queue = []
    for owner, item, since in left:
        ask = (item.resource, item.product, item.count, takes_devices(item))
        if ask not in found:
            found[ask] = why_not(floor, item, site)
        why = found[ask]
        waiting = Waiting(key=item.key, code=why.code, message=why.message)
        queue.append(Queued(owner=owner, since=since, waiting=waiting))
    return tuple(sorted(queue, key=lambda q: (q.owner, q.waiting.key)))
