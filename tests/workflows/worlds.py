"""A whole Sunfleet in one process for workflow tests: a simulated world, a real Temporal server, real workers.

Engines are tasks of this process, the API server, the Hub and the gateway are served over HTTP as ever. Nothing of
Sunfleet is replaced.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from console.facade import Console, Place
from sim.network import MappedTransport, NetworkTable
from sim.world import ClockPart, NodePart, RepoPart, SitePart, World, WorldSpec
from sunfleet.messages import DeploymentStatusView, SetFleet
from workers import roles, settings

PATIENCE = 60.0
ORIGIN = datetime(2026, 11, 2, 0, 0, tzinfo=UTC)  # a Monday, 09:00 in Tokyo
NAMESPACE = "llm"


def fleet(
    name: str,
    site: str,
    *,
    hot: int = 0,
    tensor: int = 1,
    windows: list[dict[str, Any]] | None = None,
    otherwise: dict[str, int] | None = None,
    models: tuple[str, ...] = ("chat",),
) -> dict[str, Any]:
    """A fleet's JSON: one site, models of one kind; `hot` is an always-window."""
    rows = windows if windows is not None else ([{"name": "always", "always": True, "hot": hot}] if hot else [])
    return {
        "apiVersion": "sunfleet.dev/v1alpha1",
        "kind": "Fleet",
        "metadata": {"name": name},
        "sites": {
            site: {
                "zone": "Asia/Tokyo",
                "endpoint": f"https://{site}.infer.example.net/{{deployment}}/v1",
                "gpus": {"h200": {"product": "NVIDIA-H200"}},
            }
        },
        "engines": {"vllm": {"image": "sim/vllm", "key": {"secret": "sunfleet-engine-key"}}},
        "models": {
            m: {
                "source": f"hf://sunfleet/chat@{'1' * 40}",
                "servedName": m,
                "gpu": "h200",
                "parallel": {"tensor": tensor},
            }
            for m in models
        },
        "pools": {
            m: {"model": m, "sites": [site], "windows": rows} | ({"otherwise": otherwise} if otherwise else {})
            for m in models
        },
    }


@dataclass(slots=True)
class Rig:
    """A running set-up. Site and fleet names are its own, so that tests share one Temporal server."""

    world: World
    console: Console
    site: str
    fleet: str
    settings: settings.Settings

    def place(self, model: str = "chat") -> Place:
        return Place(site=self.site, namespace=NAMESPACE, model=model)

    async def apply(self, body: dict[str, Any], **more: Any) -> Any:
        request = SetFleet(request_id=f"r-{uuid.uuid4().hex[:8]}", author="test", body=body, **more)
        return await self.console.apply(self.fleet, request)

    async def until(
        self, reached: Callable[[DeploymentStatusView], bool], model: str = "chat", within: float = PATIENCE
    ) -> DeploymentStatusView:
        """Wait for a status. Fails with the last one and its reasons."""
        last: object = None

        async def look() -> DeploymentStatusView | None:
            nonlocal last
            try:
                last = view = await self.console.deployment_status(self.place(model))
            except Exception as error:  # noqa: BLE001  # not there yet
                last = error
                return None
            return view if reached(view) else None

        try:
            found: DeploymentStatusView = await eventually(look, within)
        except AssertionError:
            raise AssertionError(f"not reached; last: {last}") from None
        return found

    async def hot(self, count: int = 1, model: str = "chat") -> DeploymentStatusView:
        """Wait until replicas serve and the gateway knows."""
        return await self.until(lambda v: v.hot == count and v.acknowledged >= v.routes_version, model)

    async def gone(self, model: str = "chat") -> None:
        """Wait until nothing of a model is left, in our books and in the cluster."""
        await self.until(lambda v: not v.replicas and v.acknowledged >= v.routes_version, model)

    async def pods(self) -> list[dict[str, Any]]:
        """What the cluster has, of ours."""
        client = self.world.clients[self.site]
        found = (await client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/pods"))["items"]
        return [p for p in found if "sunfleet.dev/hold" in (p["metadata"].get("labels") or {})]

    async def held(self) -> int:
        return sum((await self.console.site_status(self.site)).held.values())


async def eventually(look: Callable[[], Awaitable[Any]], within: float = PATIENCE) -> Any:
    """Ask until the answer is true."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        if found := await look():
            return found
        assert loop.time() < deadline, "it did not come about"
        await asyncio.sleep(0.05)


@asynccontextmanager
async def rig(
    temporal: WorkflowEnvironment,
    folder: Path,
    *,
    nodes: int = 2,
    gpus: int = 4,
    cached: int = 500,
    rate: float = 60.0,
    kubernetes: str = "simulated",
    in_process: bool = True,
    work: bool = True,
    engine_env: dict[str, str] | None = None,
    sweep_seconds: float = 2.0,
) -> AsyncIterator[Rig]:
    """Start everything for one test; `cached` 0 replays every workflow from its beginning at every task."""
    unique = uuid.uuid4().hex[:6]
    site, name = f"s{unique}", f"f{unique}"
    spec = WorldSpec(
        sites={
            site: SitePart(
                endpoint=f"https://{site}.infer.example.net/{{deployment}}/v1",
                kubernetes=kubernetes,
                nodes=[NodePart(name=f"{site}-n{i + 1}", gpus=gpus) for i in range(nodes)],
            )
        },
        repos=[RepoPart(name="sunfleet/chat", revision="1" * 40, bytes=20_000)],
        clock=ClockPart(real_origin=datetime.now(UTC), fleet_origin=ORIGIN, rate=rate),
        engine_env={"SIM_START_SECONDS": "0.2"} | (engine_env or {}),
        lead_prior_seconds=5.0,
        sweep_seconds=sweep_seconds,
    )
    if in_process:
        spec = spec.model_copy(update={"images": {"sim/vllm": ["in-process"]}})
    async with World(folder, spec).running() as world:
        found = settings.read(folder / "config.json").model_copy(update={"cached_workflows": cached})
        console = Console(temporal.client, found.fleet_clock, patience=timedelta(seconds=20))
        made = Rig(world, console, site, name, found)
        async with working(temporal.client, made) if work else _nothing():
            yield made
        for kubelet in world.kubelets.values():
            kubelet.stop_all()


@asynccontextmanager
async def working(client: Client, made: Rig) -> AsyncIterator[None]:
    """Workers for the length of a block."""
    stop = asyncio.Event()
    table = NetworkTable(Path(made.settings.network))
    running = asyncio.create_task(roles.run_all(client, made.settings, lambda: MappedTransport(table), stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(running, 30)


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield
