"""Residency: the rungs of warmth, who claims what, and the target that follows.

Claims are floors, caps are ceilings. Counts are cumulative upwards (a hot replica counts as asleep and as
staged), so the target of a rung is the maximum over the claims on that rung or a higher one. All instants
are fleet time, aware and in UTC.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Warmth(StrEnum):
    """The rungs, coldest first. `height` orders them."""

    COLD = "cold"
    STAGED = "staged"  # weights verified and engine image present on the node
    ASLEEP = "asleep"  # process up, weights in host memory, GPU memory given up
    HOT = "hot"  # serving and proven

    @property
    def height(self) -> int:
        return _HEIGHT[self]


_HEIGHT = {Warmth.COLD: 0, Warmth.STAGED: 1, Warmth.ASLEEP: 2, Warmth.HOT: 3}
RUNGS = (Warmth.STAGED, Warmth.ASLEEP, Warmth.HOT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """Somebody wants `count` replicas on `warmth` from `ready_by` until `expires_at`.

    `ready_by` is a promise, not a start: the work begins a lead earlier. `expires_at` is None for pins only.
    `minimum` is what must be had under shortage before any claim gets its whole count.
    """

    source: str  # window/<pool>/<window>, prewarm/<request>, pin/<request>, demand, batch, spec
    warmth: Warmth
    count: int
    ready_by: datetime
    expires_at: datetime | None
    priority: int = 100
    minimum: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cap:
    """Nothing above `warmth` from `since` until `until` (None: until lifted). Beats every claim."""

    source: str
    warmth: Warmth
    since: datetime
    until: datetime | None
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What should be true at one instant: cumulative counts by rung, and why."""

    hot: int = 0
    asleep: int = 0
    staged: int = 0
    minimum: int = 0  # of the hot ones, how many come before other models' wishes
    priority: int = 0
    because: str = ""  # the source that decided the highest rung wanted
    ready_by: datetime | None = None  # since when that source has wanted it: its opening
    capped_by: str = ""

    def count(self, warmth: Warmth) -> int:
        """The cumulative count wanted on a rung."""
        return {Warmth.HOT: self.hot, Warmth.ASLEEP: self.asleep, Warmth.STAGED: self.staged}.get(warmth, 0)


def active(claim: Claim, at: datetime) -> bool:
    """Whether the claim binds at an instant: half-open, [ready_by, expires_at)."""
    return claim.ready_by <= at and (claim.expires_at is None or at < claim.expires_at)


def capping(caps: tuple[Cap, ...], at: datetime) -> Cap | None:
    """The lowest cap in force; the first by source among equals."""
    now = [c for c in caps if c.since <= at and (c.until is None or at < c.until)]
    return min(now, key=lambda c: (c.warmth.height, c.source), default=None)


def target(claims: tuple[Claim, ...], caps: tuple[Cap, ...], at: datetime) -> Target:
    """What should be true at `at`. Pure: the same instant gives the same answer."""
    live = sorted((c for c in claims if active(c, at) and c.count > 0), key=_rank)
    cap = capping(caps, at)
    ceiling = cap.warmth if cap else Warmth.HOT
    counts = {
        rung: max((c.count for c in live if c.warmth.height >= rung.height), default=0)
        if rung.height <= ceiling.height
        else 0
        for rung in RUNGS
    }
    first = live[0] if live else None
    hot = [c for c in live if c.warmth is Warmth.HOT] if counts[Warmth.HOT] else []
    return Target(
        hot=counts[Warmth.HOT],
        asleep=counts[Warmth.ASLEEP],
        staged=counts[Warmth.STAGED],
        minimum=min(max((c.minimum for c in hot), default=0), counts[Warmth.HOT]),
        priority=max((c.priority for c in live), default=0),
        because=first.source if first else "",
        ready_by=first.ready_by if first else None,
        capped_by=cap.source if cap and first and first.warmth.height > ceiling.height else "",
    )


def _rank(claim: Claim) -> tuple[int, int, str, datetime]:
    """Highest rung first, then the largest, then by name: the order in which claims came says nothing."""
    return -claim.warmth.height, -claim.count, claim.source, claim.ready_by


def edges(claims: tuple[Claim, ...], caps: tuple[Cap, ...], after: datetime) -> tuple[datetime, ...]:
    """The instants strictly after `after` at which the target may change, ascending."""
    found = {i for c in claims for i in (c.ready_by, c.expires_at) if i is not None and i > after}
    found |= {i for c in caps for i in (c.since, c.until) if i is not None and i > after}
    return tuple(sorted(found))
