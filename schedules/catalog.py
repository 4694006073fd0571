"""Schedules as data: which ones a fleet wants, and what each of them says. Pure but for its types.

One Schedule per pool, site and local window edge, in the site's zone, so that every edge is visible in the
Temporal UI. They only nudge: meaning comes from the claims, which are absolute instants. So a clock change
that fires an edge twice, late or not at all costs nothing. In a compressed day calendars mean nothing, and
each pool has one short interval instead.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import timedelta

from sunfleet import calendars, names
from sunfleet.clock import FleetClock
from sunfleet.messages import NudgeInput
from sunfleet.model import FleetSpec

PREFIX = "sunfleet"
CATCH_UP = timedelta(seconds=60)
COMPRESSED_EVERY = timedelta(hours=1)  # of fleet time
COMPRESSED_FLOOR = timedelta(seconds=10)  # of real time
DAILY_HOURS = timedelta(hours=1)  # a real-time fleet looks again this often in any case


@dataclass(frozen=True, slots=True, kw_only=True)
class Local:
    """A wall-clock time on some weekdays (0 is Monday) in a zone."""

    zone: str
    hour: int
    minute: int
    weekdays: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """One Schedule: an edge in local time, or an interval of real time."""

    id: str
    nudge: NudgeInput
    local: Local | None = None
    every: timedelta | None = None
    note: str = ""

    @property
    def digest(self) -> str:
        """Equal when nothing about it changed."""
        text = json.dumps(asdict(self), sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def prefix(fleet: str) -> str:
    """What the ids of a fleet's own Schedules begin with."""
    return f"{PREFIX}/{fleet}/"


def wanted(fleet: FleetSpec, clock: FleetClock) -> tuple[Wanted, ...]:
    """Every Schedule of a fleet, sorted by id."""
    found = _intervals(fleet, clock) if clock.rate > 1 else (*_edges(fleet), *_hourly(fleet))
    return tuple(sorted(found, key=lambda w: w.id))


def _intervals(fleet: FleetSpec, clock: FleetClock) -> tuple[Wanted, ...]:
    every = max(clock.real_duration(COMPRESSED_EVERY), COMPRESSED_FLOOR)
    pools = tuple(names.pool_id(fleet.name, p) for p in fleet.pools)
    sites = tuple(names.site_id(s) for s in fleet.sites)
    nudge = NudgeInput(pools=pools, sites=sites, why="interval of a compressed day")
    return (Wanted(id=f"{prefix(fleet.name)}compressed", nudge=nudge, every=every, note="compressed day"),)


def _hourly(fleet: FleetSpec) -> tuple[Wanted, ...]:
    pools = tuple(names.pool_id(fleet.name, p) for p in fleet.pools)
    sites = tuple(names.site_id(s) for s in fleet.sites)
    nudge = NudgeInput(pools=pools, sites=sites, why="hourly look")
    return (Wanted(id=f"{prefix(fleet.name)}hourly", nudge=nudge, every=DAILY_HOURS, note="hourly look"),)


def _edges(fleet: FleetSpec) -> tuple[Wanted, ...]:
    found = []
    for pool in fleet.pools.values():
        for site in pool.sites:
            for edge in calendars.edges(pool, fleet.sites[site]):
                days = "".join(str(d) for d in edge.weekdays)
                found.append(
                    Wanted(
                        id=f"{prefix(fleet.name)}{pool.name}/{site}/{edge.hour:02d}{edge.minute:02d}-{days}",
                        nudge=NudgeInput(pools=(names.pool_id(fleet.name, pool.name),), why=f"edge at {site}"),
                        local=Local(zone=edge.zone, hour=edge.hour, minute=edge.minute, weekdays=edge.weekdays),
                        note=f"{edge.hour:02d}:{edge.minute:02d} {edge.zone}",
                    )
                )
    return tuple({w.id: w for w in found}.values())
