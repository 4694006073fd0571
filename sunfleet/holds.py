"""The values of a site's ledger: what is wanted, what is held, who waits and why. The rules are in `ledger`.

A deployment sends all that it wants, whole (`Want`); the ledger answers with all that it has, whole
(`Grant`). Item keys are never reused by a deployment, so a late grant cannot be taken for a new one. A hold's
generation rises with every grant at the site and fences every later effect.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sunfleet.inventory import Inventory
from sunfleet.warmth import Warmth


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One place that a deployment wants: GPUs for a hot replica, or room on a node for staged weights."""

    key: str
    rung: Warmth  # HOT asks for `count` devices; STAGED asks for a node and no device
    resource: str
    count: int  # devices of a replica on that resource; for STAGED what the node must be able to hold
    product: str = ""
    priority: int = 100
    minimum: bool = False  # belongs to the part that comes before other models' wishes
    prefer: tuple[str, ...] = ()  # nodes that already hold the weights, best first


@dataclass(frozen=True, slots=True, kw_only=True)
class Want:
    """All that one deployment wants. `started` are holds with a replica on them: freed by `released` alone."""

    owner: str  # the deployment's workflow id
    version: int
    items: tuple[Item, ...] = ()
    started: tuple[str, ...] = ()  # hold ids


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """The grant of one place to one replica."""

    id: str  # h<generation>
    generation: int
    owner: str
    key: str
    rung: Warmth
    node: str
    node_uid: str
    resource: str
    count: int  # devices held: 0 for STAGED
    started: bool = False
    leaving: bool = False  # the owner no longer wants it; it is freed when its pods are gone


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Why an item has no hold; `code` is CamelCase.

    NodesUnknown (nothing observed yet), NoSuchGpu, SlicedGpu (a slice cannot be ganged), NoNodeLargeEnough,
    NodesClosed (taken back), NodesNotReady (or cordoned), Full, Reserved (for a larger one that comes first).
    """

    key: str
    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """A node that its owner takes back by a deadline: nothing new is placed, what is there leaves."""

    node: str
    node_uid: str
    by: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """A hold as its owner sees it."""

    hold: Hold
    retire_by: datetime | None = None  # the node is being taken back


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """All that one deployment has and waits for, in answer to its want of `want_version`."""

    version: int  # the ledger's revision: rises with every change
    want_version: int
    holds: tuple[Held, ...] = ()
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Queued:
    """A wanted item without a hold. `since` is the ledger's revision at which it came: first come, first served."""

    owner: str
    since: int
    waiting: Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """A key whose hold was released: never granted again, however late its owner's next want arrives."""

    owner: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ledger:
    """The whole state of a site's ledger.

    Tuples are sorted: wants by owner, holds by generation, closures by node uid, the queue and spent keys by
    owner and key.
    """

    revision: int = 0
    generation: int = 0
    inventory: Inventory = Inventory()
    wants: tuple[Want, ...] = ()
    holds: tuple[Hold, ...] = ()
    closures: tuple[Closure, ...] = ()
    queue: tuple[Queued, ...] = ()
    spent: tuple[Spent, ...] = ()
    blind: bool = False  # the last observation had no nodes: `inventory` is the one before it
    site: str = ""  # for messages
