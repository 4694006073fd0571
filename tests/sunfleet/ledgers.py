"""Builders for ledgers in tests: short names for nodes, wants and items."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from sunfleet import ledger as rules
from sunfleet.inventory import Devices, Inventory, Node
from sunfleet.ledger import Closure, Hold, Item, Ledger, Want
from sunfleet.warmth import Warmth

GPU = "nvidia.com/gpu"
H200 = "NVIDIA-H200"
NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


def node(
    name: str,
    allocatable: int = 8,
    *,
    foreign: int = 0,
    product: str = H200,
    resource: str = GPU,
    ready: bool = True,
    schedulable: bool = True,
    uid: str = "",
) -> Node:
    devices = Devices(resource=resource, allocatable=allocatable, foreign=foreign, product=product)
    return Node(name=name, uid=uid or f"uid-{name}", ready=ready, schedulable=schedulable, devices=(devices,))


def site(*nodes: Node) -> Ledger:
    return rules.observed(Ledger(site="tokyo"), inventory(*nodes))


def inventory(*nodes: Node) -> Inventory:
    return Inventory(nodes=nodes)


def hot(
    key: str,
    count: int = 1,
    *,
    priority: int = 100,
    minimum: bool = False,
    product: str = "",
    resource: str = GPU,
    prefer: tuple[str, ...] = (),
) -> Item:
    return Item(
        key=key,
        rung=Warmth.HOT,
        resource=resource,
        count=count,
        product=product,
        priority=priority,
        minimum=minimum,
        prefer=prefer,
    )


def staged(key: str, count: int = 1, *, product: str = "", prefer: tuple[str, ...] = ()) -> Item:
    return Item(key=key, rung=Warmth.STAGED, resource=GPU, count=count, product=product, prefer=prefer)


def want(owner: str, version: int, *items: Item, started: tuple[str, ...] = ()) -> Want:
    return Want(owner=owner, version=version, items=items, started=started)


def placed(ledger: Ledger, *wants: Want) -> Ledger:
    for each in wants:
        ledger = rules.wanted(ledger, each)
    return ledger


def where(ledger: Ledger) -> dict[tuple[str, str], str]:
    """(owner, key) → node of everything held."""
    return {(h.owner, h.key): h.node for h in ledger.holds}


def hold_of(ledger: Ledger, owner: str, key: str) -> Hold:
    return next(h for h in ledger.holds if (h.owner, h.key) == (owner, key))


def codes(ledger: Ledger, owner: str) -> dict[str, str]:
    """key → code of what an owner waits for."""
    return {w.key: w.code for w in rules.grant(ledger, owner).waiting}


def why(ledger: Ledger, owner: str, key: str) -> str:
    return next(w.message for w in rules.grant(ledger, owner).waiting if w.key == key)


def closure(name: str, hours: float = 1) -> Closure:
    return Closure(node=name, node_uid=f"uid-{name}", by=NOON + timedelta(hours=hours))
