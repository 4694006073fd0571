"""The kubelet itself: its nodes, and a runner for each pod that is bound to one of them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path

from sim.apiclient import ApiClient, ApiError, Json, Mirror
from sim.kubelet.node import RENEW_SECONDS, Node, NodeSpec
from sim.kubelet.pod import PodRunner, Runtime
from sim.network import NetworkTable

log = logging.getLogger(__name__)


class Kubelet:
    """Every node of one simulated site."""

    def __init__(
        self, client: ApiClient, nodes: Sequence[NodeSpec], table: NetworkTable, runtime: Runtime, disks: Path
    ) -> None:
        self._client, self._table, self._runtime = client, table, runtime
        self.nodes = {n.name: Node(client, n, disks / n.name) for n in nodes}
        self._pods = Mirror(client, "v1", "pods")
        self._changed = asyncio.Event()
        self._runners: dict[str, tuple[PodRunner, asyncio.Task[None]]] = {}

    async def run(self) -> None:
        """Register, renew and run pods until cancelled. Processes are left running: containers outlive kubelets."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._keep_alive())
                tasks.create_task(self._pods.run(self._changed.set))
                tasks.create_task(self._keep_running())
        finally:
            for _, task in self._runners.values():
                task.cancel()
            await asyncio.gather(*(t for _, t in self._runners.values()), return_exceptions=True)

    async def _keep_alive(self) -> None:
        registered: set[str] = set()
        while True:
            for node in self.nodes.values():
                if node.dead:
                    continue
                try:
                    if node.name in registered:
                        await node.renew()
                    else:
                        await node.register()
                        registered.add(node.name)
                except ApiError as error:
                    log.info("renewal failed", extra={"node": node.name, "cause": str(error)})
            await asyncio.sleep(RENEW_SECONDS if len(registered) == len(self.nodes) else 0.5)

    async def _keep_running(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            seen: set[str] = set()
            for pod in list(self._pods.objects.values()):
                node = self.nodes.get(pod["spec"].get("nodeName", ""))
                if node is not None and not node.dead:
                    seen.add(pod["metadata"]["uid"])
                    self._see(node, pod)
            for uid in set(self._runners) - seen:
                self._forget(uid)

    def _see(self, node: Node, pod: Json) -> None:
        uid = pod["metadata"]["uid"]
        known = self._runners.get(uid)
        if known is not None:
            known[0].update(pod)
            return
        runner = PodRunner(self._client, node, self._table, self._runtime, pod)
        task = asyncio.create_task(self._run(runner))
        self._runners[uid] = (runner, task)

    async def _run(self, runner: PodRunner) -> None:
        await runner.fetch_secrets()
        await runner.run()

    def _forget(self, uid: str) -> None:
        """The object is gone: the container must not outlive it."""
        runner, task = self._runners.pop(uid)
        if not task.done():
            runner.abandon()
            task.cancel()
        elif not task.cancelled() and task.exception() is not None:
            log.error("a pod runner failed", exc_info=task.exception())

    def kill_node(self, name: str) -> None:
        """The machine loses power: its processes are gone, and nobody says so."""
        node = self.nodes[name]
        node.dead = True
        for uid, (runner, task) in list(self._runners.items()):
            if runner.pod["spec"].get("nodeName") == name:
                runner.abandon()
                task.cancel()
                del self._runners[uid]

    def stop_all(self) -> None:
        """End every container that this kubelet runs, by its id."""
        for runner, _ in self._runners.values():
            runner.abandon()
