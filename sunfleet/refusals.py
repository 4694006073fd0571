"""Why an item has no place, in a code and a sentence with numbers: the most lasting reason first."""

from __future__ import annotations

from dataclasses import dataclass

from sunfleet.holds import Item
from sunfleet.placement import Floor, Spot, product_suits, sliced, takes_devices


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why nothing fits. `code` is as in `holds.Waiting`."""

    code: str
    message: str


def why_not(floor: Floor, item: Item, site: str) -> Refusal:
    """Why the item has no place on the floor as it is left."""
    need, where = _asked(item), f"site {site}" if site else "the site"
    if not floor.known():
        return Refusal("NodesUnknown", f"{where} has not been seen yet; needs {need}")
    if item.count > 1 and sliced(item.resource):
        return Refusal("SlicedGpu", f"needs {need}, but {item.resource} is a slice: several are no more than one")
    spots = floor.spots(item.resource)
    fitting = [s for s in spots if product_suits(s.product, item)]
    if not fitting:
        return Refusal("NoSuchGpu", f"{where} has no node with {_kind(item)}{_instead(spots)}")
    large = [s for s in fitting if s.allocatable >= item.count]
    if not large:
        most = min(fitting, key=lambda s: (-s.allocatable, s.node.name))
        return Refusal(
            "NoNodeLargeEnough",
            f"{where} needs {need} on one node: the largest is {most.node.name} with {most.allocatable}",
        )
    ready = [s for s in large if not s.shut]
    if not ready:
        return _shut(large, need, where)
    if not takes_devices(item):
        return Refusal("Full", f"the weights have a place on each of {len(ready)} nodes that could serve {need}")
    return _full(item, ready, [s for s in fitting if not s.shut], where)


def _instead(spots: tuple[Spot, ...]) -> str:
    """The products that the resource does come with, as a hint."""
    products = sorted({s.product for s in spots if s.product})
    return f"; there is {', '.join(products)}" if products else ""


def _kind(item: Item) -> str:
    return item.product or item.resource or "room for an engine"


def _asked(item: Item) -> str:
    return f"{item.count} {_kind(item)}" if item.resource else "a node"


def _shut(large: list[Spot], need: str, where: str) -> Refusal:
    """Every node that is large enough is closed, or not ready."""
    closed = [s.node.name for s in large if s.shut == "NodesClosed"]
    others = [s.node.name for s in large if s.shut != "NodesClosed"]
    parts = []
    if closed:
        parts.append(f"{_listed(closed)} being taken back")
    if others:
        parts.append(f"{_listed(others)} not ready or cordoned")
    code = "NodesClosed" if closed else "NodesNotReady"
    return Refusal(code, f"{where} needs {need} on one node: {', '.join(parts)}")


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:3])
    return (
        f"{shown} and {len(names) - 3} more are" if len(names) > 3 else f"{shown} {'is' if len(names) == 1 else 'are'}"
    )


def _full(item: Item, ready: list[Spot], fitting: list[Spot], where: str) -> Refusal:
    """Everything that could hold the item is in use, or kept for another one."""
    kept = [s for s in ready if s.kept and s.free >= item.count]
    if kept:
        return Refusal(
            "Reserved", f"{kept[0].free} free on {kept[0].node.name} are kept for a replica that comes first"
        )
    total = sum(s.free for s in fitting)
    most = min(fitting, key=lambda s: (-s.free, s.node.name))
    place = f"largest free is {most.free} on {most.node.name}" if most.free else "none is free"
    others = sum(s.allocatable - s.room for s in fitting)
    foreign = f"; others use {others}" if others else ""
    return Refusal("Full", f"{where} has {total} free {_kind(item)}, needs {item.count} on one node: {place}{foreign}")
