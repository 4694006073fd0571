"""What a site's worker sees, told to those whom it concerns, once per change.

The digests of the last facts told are kept in memory alone: after a restart everything is told once more, at
a bounded rate, and receivers ignore what they know. Nothing is concluded from an empty answer here: that is
the reflector's part.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta

from activities import MODEL_DEPLOYMENT, NODE, POD, Cluster, Entities, Object, Signal
from sunfleet import messages, names
from sunfleet.clock import FleetClock
from sunfleet.errors import SunfleetError
from sunfleet.inventory import Inventory
from sunfleet.messages import (
    DeploymentInput,
    InventoryChanged,
    PodDigest,
    PodsChanged,
    SiteInput,
    SpecChanged,
)
from sunfleet.pods import digest_pod, inventory
from workers.reflector import Reflector

log = logging.getLogger(__name__)
COALESCE = timedelta(milliseconds=200)
RETRY = timedelta(seconds=1)


class SiteWatcher:
    """One site's objects, pods and nodes, and what was last told of them."""

    def __init__(
        self,
        site: str,
        namespace: str,
        cluster: Cluster,
        entities: Entities,
        *,
        clock: FleetClock,
        lead_prior: timedelta,
    ) -> None:
        self.site, self.namespace = site, namespace
        self._entities, self._clock, self._lead_prior = entities, clock, lead_prior
        self._deployments = Reflector(cluster, MODEL_DEPLOYMENT, namespace)
        self._pods = Reflector(cluster, POD)
        self._nodes = Reflector(cluster, NODE)
        self._told_specs: dict[str, tuple[str, int]] = {}
        self._told_pods: dict[str, tuple[str, tuple[PodDigest, ...]]] = {}  # hold → owner, pods
        self._told_inventory = Inventory()
        self._changed = asyncio.Event()

    @property
    def nodes(self) -> Mapping[str, Object]:
        """The nodes as last seen, by name."""
        return self._nodes.objects

    async def run(self) -> None:
        """Watch and tell until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for reflector in (self._deployments, self._pods, self._nodes):
                tasks.create_task(reflector.run(self._changed.set))
            tasks.create_task(self._keep_telling())

    async def _keep_telling(self) -> None:
        while True:
            await self._changed.wait()
            await asyncio.sleep(COALESCE.total_seconds())
            self._changed.clear()
            try:
                await self.tell()
            except SunfleetError as error:
                log.warning("telling what %s has failed: %s", self.site, error.message)
                await asyncio.sleep(RETRY.total_seconds())
                self._changed.set()

    async def tell(self) -> None:
        """Tell everything that is not told yet."""
        if self._deployments.synced:
            await self._tell_specs()
        if self._pods.synced:
            await self._tell_pods()
        if self._pods.synced and self._nodes.synced:
            await self._tell_inventory()

    async def _tell_specs(self) -> None:
        seen = {o["metadata"]["name"]: o["metadata"] for o in self._deployments.objects.values()}
        for name, meta in sorted(seen.items()):
            fact = (meta["uid"], int(meta.get("generation", 1)))
            if meta.get("deletionTimestamp"):
                fact = (meta["uid"], -1)
            if self._told_specs.get(name) != fact:
                await self._start_with_spec(name, fact)
                self._told_specs[name] = fact
        for name in sorted(set(self._told_specs) - set(seen)):
            uid, generation = self._told_specs[name]
            change = SpecChanged(uid=uid, generation=max(generation, 0) + 1, deleted=True)
            await self._entities.signal(self._deployment_id(name), "spec_changed", change)
            del self._told_specs[name]

    async def _start_with_spec(self, name: str, fact: tuple[str, int]) -> None:
        uid, generation = fact
        await self._entities.signal_with_start(
            [
                Signal(
                    workflow=messages.DEPLOYMENT,
                    id=self._deployment_id(name),
                    queue=names.CONTROL_QUEUE,
                    signal="spec_changed",
                    payload=SpecChanged(uid=uid, generation=max(generation, 0), deleted=generation < 0),
                    start=DeploymentInput(
                        site=self.site,
                        namespace=self.namespace,
                        name=name,
                        clock=self._clock,
                        lead_prior=self._lead_prior,
                    ),
                )
            ]
        )

    async def _tell_pods(self) -> None:
        seen: dict[str, tuple[str, list[Object]]] = {}
        for pod in self._pods.objects.values():
            meta = pod["metadata"]
            hold = meta.get("labels", {}).get(names.HOLD)
            owner = meta.get("annotations", {}).get(names.OWNER)
            if hold and owner and meta.get("namespace") == self.namespace:
                seen.setdefault(hold, (owner, []))[1].append(pod)
        facts = {hold: (owner, _digests(pods)) for hold, (owner, pods) in seen.items()}
        for hold, (owner, _) in self._told_pods.items():
            facts.setdefault(hold, (owner, ()))
        for hold, (owner, digests) in sorted(facts.items()):
            if self._told_pods.get(hold) == (owner, digests):
                continue
            await self._entities.signal(owner, "pods_changed", PodsChanged(pods=digests))
            if digests:
                self._told_pods[hold] = (owner, digests)
            else:
                self._told_pods.pop(hold, None)

    async def _tell_inventory(self) -> None:
        seen = inventory(self._nodes.objects.values(), self._pods.objects.values())
        if seen.digest == self._told_inventory.digest:
            return
        await self._entities.signal_with_start(
            [
                Signal(
                    workflow=messages.SITE,
                    id=names.site_id(self.site),
                    queue=names.CONTROL_QUEUE,
                    signal="inventory_changed",
                    payload=InventoryChanged(inventory=seen),
                    start=SiteInput(site=self.site, clock=self._clock),
                )
            ]
        )
        self._told_inventory = seen

    def _deployment_id(self, name: str) -> str:
        return names.deployment_id(self.site, self.namespace, name)


def _digests(pods: list[Object]) -> tuple[PodDigest, ...]:
    ordered = sorted(pods, key=lambda p: (p["metadata"].get("creationTimestamp", ""), p["metadata"]["uid"]))
    return tuple(digest_pod(p) for p in ordered)
