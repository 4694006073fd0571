"""What a site has: nodes, their devices, and what others already use. Unknown is not zero.

Free is allocatable minus every non-terminal pod bound to the node, ours and foreign, Terminating ones too
(`Devices.foreign` counts those that are not ours; ours are in the ledger). Labels never give a size.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    """One extended resource of a node."""

    resource: str
    allocatable: int
    foreign: int = 0
    product: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A node by metadata.name; `uid` is the machine's identity for fences and take-backs."""

    name: str
    uid: str
    ready: bool = True
    schedulable: bool = True
    devices: tuple[Devices, ...] = ()

    def of(self, resource: str) -> Devices | None:
        return next((d for d in self.devices if d.resource == resource), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """One whole observation, nodes sorted by name. `digest` is equal when nothing relevant changed."""

    digest: str = ""
    nodes: tuple[Node, ...] = ()

    def node(self, name: str) -> Node | None:
        return next((n for n in self.nodes if n.name == name), None)
