"""What a site's worker sees is told to those whom it concerns: once per change, all of it after a restart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from activities import DEPLOYMENT, MODEL_DEPLOYMENT, NODE, POD
from sunfleet import manifests, names, objects
from sunfleet.clock import FleetClock
from sunfleet.errors import Unreachable
from sunfleet.messages import InventoryChanged, PodsChanged, SpecChanged
from sunfleet.model import Engine, ModelSpec, SiteSpec, Source
from tests.workers import clusters
from tests.workers.clusters import NS, Lab, Told, eventually
from workers import watcher as module
from workers.watcher import SiteWatcher

SITE = SiteSpec(name="tokyo", zone="Asia/Tokyo", endpoint="http://x/{deployment}/v1")
MODEL = ModelSpec(
    name="chat",
    source=Source(scheme="hf", repo="a/b", revision="1" * 40),
    served_name="chat",
    engine=Engine(image="sim/vllm"),
)
OWNER = names.replica_id("tokyo", NS, "chat", "h1")


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with clusters.lab(tmp_path) as found:
        yield found


@asynccontextmanager
async def watching(lab: Lab, told: Told) -> AsyncIterator[SiteWatcher]:
    found = SiteWatcher("tokyo", NS, lab.cluster, told, clock=FleetClock(), lead_prior=timedelta(seconds=30))
    task = asyncio.create_task(found.run())
    try:
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _model(lab: Lab, **changes: Any) -> dict[str, Any]:
    body = objects.deployment_object(MODEL, SITE, "f", 1)
    body["spec"] |= changes
    return await lab.cluster.apply(MODEL_DEPLOYMENT, body, names.FLEET_MANAGER)


async def test_a_model_object_starts_its_deployment_and_each_generation_is_told_once(lab: Lab) -> None:
    told = Told()
    async with watching(lab, told):
        made = await _model(lab)
        uid = made["metadata"]["uid"]
        await eventually(lambda: told.of("spec_changed"))
        status = {k: made[k] for k in ("apiVersion", "kind")} | {"metadata": {"name": "chat", "namespace": NS}}
        await lab.cluster.apply(MODEL_DEPLOYMENT, status | {"status": {"warmth": "Hot"}}, "s", subresource="status")
        await _model(lab, priority=9)
        await eventually(lambda: len(told.of("spec_changed")) >= 2)
        await lab.cluster.delete(MODEL_DEPLOYMENT, "chat", NS, uid=uid)
        await eventually(lambda: told.of("spec_changed")[-1].deleted)
    assert told.of("spec_changed") == [
        SpecChanged(uid=uid, generation=1),
        SpecChanged(uid=uid, generation=2),
        SpecChanged(uid=uid, generation=3, deleted=True),
    ]
    assert {id for id, name, _ in told.signals if name == "spec_changed"} == {names.deployment_id("tokyo", NS, "chat")}


async def test_pods_are_told_to_the_replica_that_their_annotation_names(lab: Lab) -> None:
    told = Told()
    await lab.node("n1")
    async with watching(lab, told):
        replica = manifests.Replica(
            name=names.replica_name("chat", "h1"), hold="h1", generation=1, node="n1", owner=OWNER, directory="d"
        )
        made = await lab.cluster.apply(DEPLOYMENT, manifests.workload(MODEL, SITE, replica), names.MANAGER)
        await eventually(lambda: any(p.pods for p in told.of("pods_changed")))
        await lab.cluster.delete(DEPLOYMENT, made["metadata"]["name"], NS, uid=made["metadata"]["uid"])
        await lab.end_pods()
        await eventually(lambda: told.of("pods_changed")[-1] == PodsChanged(pods=()))
    assert {id for id, name, _ in told.signals if name == "pods_changed"} == {OWNER}


async def test_pods_of_others_concern_nobody(lab: Lab) -> None:
    told = Told()
    await lab.node("n1")
    async with watching(lab, told):
        body = manifests.prepull("sim/vllm", "n1", NS, "pull")
        await lab.cluster.create(POD, body)
        await eventually(lambda: told.of("inventory_changed"))
    assert told.of("pods_changed") == []


async def test_the_inventory_is_told_when_it_means_something_else_and_not_with_every_heartbeat(lab: Lab) -> None:
    told = Told()
    await lab.node("n1", gpus=4)

    def gpus() -> int:
        found: list[InventoryChanged] = told.of("inventory_changed")
        return sum(d.allocatable for n in found[-1].inventory.nodes for d in n.devices) if found else 0

    async with watching(lab, told):
        await eventually(lambda: gpus() == 4)
        before = len(told.of("inventory_changed"))
        for second in range(5):
            beat = {
                "type": "Ready",
                "status": "True",
                "lastHeartbeatTime": f"2026-12-01T00:00:0{second}Z",
            }
            await lab.cluster.patch(NODE, "n1", {"status": {"conditions": [beat]}}, subresource="status")
        await lab.node("n2", gpus=8)
        await eventually(lambda: gpus() == 12)
    assert len(told.of("inventory_changed")) <= before + 2  # the node as made, and as it reported


async def test_after_a_restart_all_is_told_once_more(lab: Lab) -> None:
    await lab.node("n1")
    await _model(lab)
    for _ in range(2):
        told = Told()
        async with watching(lab, told):
            await eventually(lambda told=told: told.of("spec_changed") and told.of("inventory_changed"))  # type: ignore[misc]
        assert len(told.of("spec_changed")) == 1


async def test_what_could_not_be_told_is_told_later(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY", timedelta(milliseconds=20))
    told = Told(fail_with=Unreachable("Temporal did not answer"))
    async with watching(lab, told):
        await _model(lab)
        await eventually(lambda: told.refused >= 2)
        told.fail_with = None
        await eventually(lambda: told.of("spec_changed"))
