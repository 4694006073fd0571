"""Processes: which queues a worker serves, with which clients. The one place where clients meet activities."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import httpx
from temporalio.client import Client, Interceptor
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.envconfig import ClientConfig
from temporalio.service import RPCError, RPCStatusCode
from temporalio.worker import Worker

from activities.calendar import CalendarActivities
from activities.clients.engine import HttpEngineClient
from activities.clients.gateway import HttpGateway
from activities.clients.kubernetes import KubernetesCluster
from activities.clients.temporal import TemporalEntities
from activities.cluster import ClusterActivities
from activities.engine import EngineActivities
from activities.entities import EntityActivities
from activities.gateway import GatewayActivities
from activities.schedules import ScheduleActivities
from activities.weights import WeightActivities
from schedules.server import TemporalSchedules
from sunfleet import names
from sunfleet.errors import Unreachable
from sunfleet.ledger import Hold
from sunfleet.messages import SiteStatusView
from weights.store import NodeStore
from workers.settings import Settings, SiteSettings, node_disk
from workers.sweeper import Sweeper
from workers.watcher import SiteWatcher
from workflows import registry

log = logging.getLogger(__name__)
GRACE = timedelta(seconds=10)
CONNECT_FOR = timedelta(seconds=60)
NODES_EVERY = timedelta(seconds=2)
Transport = Callable[[], httpx.AsyncBaseTransport] | None


async def connect(
    settings: Settings, *, patience: timedelta = CONNECT_FOR, interceptors: Sequence[Interceptor] = ()
) -> Client:
    """A Temporal client: the address in the settings, else the SDK's environment configuration.

    Waits for a server that is not up yet. Workers inherit the interceptors. Errors: Unreachable.
    """
    config: dict[str, Any] = dict(ClientConfig.load_client_connect_config())
    if settings.temporal.address:
        config |= {"target_host": settings.temporal.address, "namespace": settings.temporal.namespace}
    config.setdefault("target_host", "localhost:7233")
    deadline = asyncio.get_running_loop().time() + patience.total_seconds()
    while True:
        try:
            return await Client.connect(
                **config, data_converter=pydantic_data_converter, interceptors=list(interceptors)
            )
        except (RPCError, RuntimeError) as error:
            if asyncio.get_running_loop().time() >= deadline:
                raise Unreachable(
                    f"no Temporal server at {config['target_host']}", hint="start one with `sunfleet up`"
                ) from error
            await asyncio.sleep(0.25)


@dataclass(frozen=True, slots=True)
class _Tuning:
    """How a worker polls. A compressed day must not lose ten seconds to a dead worker's sticky queue."""

    sticky: timedelta
    throttle: timedelta


def _tuning(settings: Settings) -> _Tuning:
    fast = settings.fleet_clock.rate > 1
    return _Tuning(sticky=timedelta(seconds=1 if fast else 10), throttle=timedelta(seconds=5 if fast else 30))


def control_worker(client: Client, settings: Settings, transport: Transport = None) -> Worker:
    """Every workflow, and the effects that need no site."""
    entities = TemporalEntities(client)
    gateways = [HttpGateway(g.name, g.url, key=_key(g.key, g.key_file)) for g in settings.gateways]
    parts = (
        EntityActivities(entities),
        GatewayActivities(gateways),
        CalendarActivities(),
        ScheduleActivities(TemporalSchedules(client)),
    )
    tuning = _tuning(settings)
    return Worker(
        client,
        task_queue=names.CONTROL_QUEUE,
        workflows=registry.ALL,
        workflow_runner=registry.runner(),
        activities=[method for part in parts for method in methods(part)],
        graceful_shutdown_timeout=GRACE,
        sticky_queue_schedule_to_start_timeout=tuning.sticky,
        max_cached_workflows=settings.cached_workflows,
    )


def site_worker(
    client: Client, site: str, cluster: KubernetesCluster, settings: Settings, transport: Transport
) -> Worker:
    """Effects on one site's cluster and engines."""
    engine = HttpEngineClient(transport=transport() if transport else None)
    parts = (ClusterActivities(cluster), EngineActivities(cluster, engine))
    return Worker(
        client,
        task_queue=names.site_queue(site),
        activities=[method for part in parts for method in methods(part)],
        graceful_shutdown_timeout=GRACE,
        max_heartbeat_throttle_interval=_tuning(settings).throttle,
        max_concurrent_activities=64,
    )


def node_worker(client: Client, site: str, node: str, disk: Path, settings: Settings) -> Worker:
    """One node's weights; `disk` is its root directory."""

    def store_at(cache: str) -> NodeStore:
        return NodeStore(
            Path(f"{disk}/{cache.strip('/')}"),
            endpoint=settings.hub.endpoint or None,
            token_file=Path(settings.hub.token_file) if settings.hub.token_file else None,
        )

    return Worker(
        client,
        task_queue=names.node_queue(site, node),
        activities=methods(WeightActivities(store_at)),
        activity_executor=ThreadPoolExecutor(max_workers=4),
        graceful_shutdown_timeout=GRACE,
        max_heartbeat_throttle_interval=_tuning(settings).throttle,
        max_concurrent_activities=4,
        max_concurrent_activity_task_polls=1,
    )


def methods(part: object) -> list[Callable[..., Any]]:
    """The activities of an object, by name."""
    found = [getattr(part, n) for n in sorted(dir(part)) if not n.startswith("_")]
    return [m for m in found if callable(m) and hasattr(m, "__temporal_activity_definition")]


def _key(key: str, file: str) -> str | None:
    return Path(file).read_text().strip() if file else (key or None)


class TemporalOwners:
    """What the sweep asks Temporal."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def runs(self, workflow_id: str) -> bool:
        try:
            described = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return False
            raise Unreachable(f"the Temporal server did not answer: {error.status.name}") from error
        return described.close_time is None

    async def holds(self, site: str) -> tuple[Hold, ...]:
        handle = self._client.get_workflow_handle(names.site_id(site))
        try:
            status = await handle.query("status", result_type=SiteStatusView)
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return ()
            raise Unreachable(f"site {site} did not answer: {error.status.name}") from error
        return tuple(h for h in status.ledger.holds if h.started)


async def run_control(client: Client, settings: Settings, transport: Transport, stop: asyncio.Event) -> None:
    async with control_worker(client, settings, transport):
        await stop.wait()


async def run_site(
    client: Client,
    name: str,
    site: SiteSettings,
    settings: Settings,
    transport: Transport,
    stop: asyncio.Event,
    *,
    nodes_too: bool,
) -> None:
    """A site's worker with its watcher and sweep; with `nodes_too`, its nodes' agents in the same process."""
    async with AsyncExitStack() as stack:
        cluster = await KubernetesCluster.from_kubeconfig(site.kubeconfig)
        stack.push_async_callback(cluster.close)
        entities = TemporalEntities(client)
        watcher = SiteWatcher(
            name,
            site.namespace,
            cluster,
            entities,
            clock=settings.fleet_clock,
            lead_prior=settings.lead_prior,
        )
        sweeper = Sweeper(name, site.namespace, cluster, entities, TemporalOwners(client))
        await stack.enter_async_context(site_worker(client, name, cluster, settings, transport))
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(watcher.run()),
                tasks.create_task(sweeper.run(timedelta(seconds=settings.sweep_seconds))),
            ]
            if nodes_too:
                running.append(tasks.create_task(_run_nodes(client, name, site, settings, watcher)))
            await stop.wait()
            for task in running:
                task.cancel()


async def _run_nodes(client: Client, name: str, site: SiteSettings, settings: Settings, watcher: SiteWatcher) -> None:
    """An agent for each node that the watcher knows; one that is gone keeps its agent, which costs nothing."""
    async with AsyncExitStack() as stack:
        known: set[str] = set()
        while True:
            for node in sorted(set(watcher.nodes) - known):
                await stack.enter_async_context(node_worker(client, name, node, node_disk(site, node), settings))
                known.add(node)
            await asyncio.sleep(NODES_EVERY.total_seconds())


async def run_node(client: Client, site: str, node: str, disk: Path, settings: Settings, stop: asyncio.Event) -> None:
    async with node_worker(client, site, node, disk, settings):
        await stop.wait()


async def run_all(client: Client, settings: Settings, transport: Transport, stop: asyncio.Event) -> None:
    """Every role in one process: what `sunfleet up` runs as its workers."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(run_control(client, settings, transport, stop))
        for name, site in settings.sites.items():
            tasks.create_task(run_site(client, name, site, settings, transport, stop, nodes_too=True))
