"""A simulated API server for the tests of what watches it, and stand-ins for the entities that are told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from activities import CRD, NAMESPACE, NODE, POD, SECRET, Object, Signal
from activities.clients.kubernetes import KubernetesCluster
from sim.cluster import SimCluster
from sunfleet.crd import crd

NS = "llm"


@dataclass(slots=True)
class Lab:
    """A server with one namespace and our kind of object."""

    sim: SimCluster
    cluster: KubernetesCluster

    async def secret(self, name: str) -> Object:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": NS}}
        return await self.cluster.create(SECRET, body)

    async def node(self, name: str, gpus: int = 4) -> Object:
        await self.cluster.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}})
        sizes = {"cpu": "9", "pods": "9", "nvidia.com/gpu": str(gpus)}
        status = {"allocatable": sizes, "conditions": [{"type": "Ready", "status": "True"}]}
        return await self.cluster.patch(NODE, name, {"status": status}, subresource="status")

    async def end_pods(self) -> None:
        """What a kubelet does with the pods of a workload that was deleted: end them, and say so."""
        await eventually(
            lambda: all(p["metadata"].get("deletionTimestamp") for p in self.sim.store.of("pods", NS)),
        )
        for pod in self.sim.store.of("pods", NS):
            meta = pod["metadata"]
            await self.cluster.delete(POD, meta["name"], NS, uid=meta["uid"], grace_seconds=0)


@asynccontextmanager
async def lab(folder: Path) -> AsyncIterator[Lab]:
    sim = SimCluster()
    await sim.start()
    cluster = await KubernetesCluster.from_kubeconfig(str(sim.write_kubeconfig(folder / "kubeconfig")))
    await cluster.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NS}})
    await cluster.apply(CRD, crd(), "test")
    yield Lab(sim, cluster)
    await cluster.close()
    await sim.stop()


@dataclass(slots=True)
class Told:
    """Entities that remember what they were told, and can be out of reach."""

    signals: list[tuple[str, str, Any]] = field(default_factory=list)
    fail_with: Exception | None = None
    refused: int = 0

    async def signal_with_start(self, signals: Sequence[Signal]) -> None:
        for one in signals:
            await self.signal(one.id, one.signal, one.payload)

    async def signal(self, id: str, signal: str, payload: Any) -> bool:
        if self.fail_with is not None:
            self.refused += 1
            raise self.fail_with
        self.signals.append((id, signal, payload))
        return True

    def of(self, signal: str) -> list[Any]:
        return [payload for _, name, payload in self.signals if name == signal]


async def eventually(check: Callable[[], object], within: float = 30.0) -> None:
    """Other tasks work in their own time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not check():
        assert loop.time() < deadline, "it did not come about"
        await asyncio.sleep(0.02)
