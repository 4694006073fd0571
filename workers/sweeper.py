"""The janitor: finds what nobody owns any more, and ends it. Works from the cluster's state, not from memory.

A workload belongs to the replica workflow that its annotation names. When that workflow is closed or was
never there, the workload is deleted by uid, and once its pods are gone the hold is given back. Objects that
are not ours are never touched; an error ends nothing, and neither does one empty answer: a hold is given back only
when two sweeps running found nothing on it.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Protocol

from activities import DEPLOYMENT, POD, Cluster, Entities, Object
from sunfleet import names
from sunfleet.errors import SunfleetError
from sunfleet.ledger import Hold
from sunfleet.messages import Released

log = logging.getLogger(__name__)


class Owners(Protocol):
    """What the sweep asks Temporal."""

    async def runs(self, workflow_id: str) -> bool:
        """Whether such a workflow is open. Errors: Unreachable."""

    async def holds(self, site: str) -> tuple[Hold, ...]:
        """The site ledger's started holds; none when the site does not run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swept:
    """What one sweep did: workloads ended, holds given back."""

    ended: tuple[str, ...] = ()
    released: tuple[str, ...] = ()


class Sweeper:
    """One site's sweep."""

    def __init__(self, site: str, namespace: str, cluster: Cluster, entities: Entities, owners: Owners) -> None:
        self._site, self._namespace = site, namespace
        self._cluster, self._entities, self._owners = cluster, entities, owners
        self._suspects: set[str] = set()  # holds that the last sweep found unowned

    async def run(self, every: timedelta) -> None:
        """Sweep for ever; a failed sweep is logged, and the next one tries again."""
        while True:
            await asyncio.sleep(every.total_seconds())
            try:
                swept = await self.sweep()
            except SunfleetError as error:
                log.warning("the sweep of %s failed: %s", self._site, error.message)
                continue
            if swept.ended or swept.released:
                log.warning("swept %s: ended %s, gave back %s", self._site, swept.ended, swept.released)

    async def sweep(self) -> Swept:
        """End orphans, then give back holds of closed replicas that have nothing left in the cluster."""
        ours = f"{names.MANAGED_BY}={names.MANAGER},{names.HOLD}"
        holds = await self._owners.holds(self._site)  # before the cluster: what starts later is not judged
        workloads = (await self._cluster.list(DEPLOYMENT, self._namespace, ours)).items
        ended = [w["metadata"]["name"] for w in workloads if await self._end_orphan(w)]
        standing = {w["metadata"]["labels"][names.HOLD] for w in workloads}
        standing |= {
            p["metadata"]["labels"][names.HOLD] for p in (await self._cluster.list(POD, self._namespace, ours)).items
        }
        unowned = [h.id for h in holds if h.id not in standing and not await self._owners.runs(self._replica(h))]
        released = tuple(h for h in unowned if h in self._suspects)
        for hold in released:
            await self._entities.signal(names.site_id(self._site), "released", Released(hold=hold))
        self._suspects = set(unowned) - set(released)
        return Swept(ended=tuple(ended), released=released)

    async def _end_orphan(self, workload: Object) -> bool:
        meta = workload["metadata"]
        owner = meta.get("annotations", {}).get(names.OWNER, "")
        if not owner or meta.get("deletionTimestamp") or await self._owners.runs(owner):
            return False
        return await self._cluster.delete(DEPLOYMENT, meta["name"], self._namespace, uid=meta["uid"])

    def _replica(self, hold: Hold) -> str:
        """The id of the hold's replica, from its deployment's: model/<site>/<namespace>/<name>."""
        return f"replica/{hold.owner.removeprefix('model/')}/{hold.id}"
