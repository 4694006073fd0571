"""Effects on entities that may not exist yet: a workflow can signal, but only a client can start on the way."""

from __future__ import annotations

from dataclasses import dataclass, field

from temporalio import activity

from activities import Entities, Signal
from activities.failures import failures_mapped
from sunfleet import messages, names
from sunfleet.clock import FleetClock
from sunfleet.messages import LookAgain, PoolInput, SetPool, SetSite, SiteInput


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPools:
    fleet: str
    clock: FleetClock
    pools: tuple[SetPool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetSites:
    clock: FleetClock
    sites: tuple[SetSite, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LookAgainAll:
    pools: tuple[str, ...] = field(default=())  # workflow ids
    sites: tuple[str, ...] = field(default=())
    why: str = ""


class EntityActivities:
    """Signals with start, and signals to many; runs on the control queue."""

    def __init__(self, entities: Entities) -> None:
        self._entities = entities

    @activity.defn
    @failures_mapped
    async def set_sites(self, command: SetSites) -> int:
        """Tell each site its facts."""
        await self._entities.signal_with_start(
            [
                Signal(
                    workflow=messages.SITE,
                    id=names.site_id(s.spec.name),
                    queue=names.CONTROL_QUEUE,
                    signal="set_site",
                    payload=s,
                    start=SiteInput(site=s.spec.name, clock=command.clock),
                )
                for s in command.sites
            ]
        )
        return len(command.sites)

    @activity.defn
    @failures_mapped
    async def set_pools(self, command: SetPools) -> int:
        """Tell each pool its spec; a removed pool that does not run is not started."""
        await self._entities.signal_with_start(
            [
                Signal(
                    workflow=messages.POOL,
                    id=names.pool_id(command.fleet, p.spec.name),
                    queue=names.CONTROL_QUEUE,
                    signal="set_spec",
                    payload=p,
                    start=PoolInput(fleet=command.fleet, pool=p.spec.name, clock=command.clock),
                )
                for p in command.pools
                if not p.removed
            ]
        )
        for pool in command.pools:
            if pool.removed:
                await self._entities.signal(names.pool_id(command.fleet, pool.spec.name), "set_spec", pool)
        return len(command.pools)

    @activity.defn
    @failures_mapped
    async def look_again(self, command: LookAgainAll) -> int:
        """Nudge entities; those that do not run need no nudge."""
        told = 0
        for entity in (*command.pools, *command.sites):
            told += await self._entities.signal(entity, "look_again", LookAgain(why=command.why))
        return told
