"""Effects on engines: prove that a replica answers, and let it finish what it has begun.

Runs on the site's queue: pod addresses are reachable there, and the key is read from the site's Secret at the
moment of use, never carried in a message.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities import SECRET, Cluster, Endpoint, EngineClient
from activities.failures import failures_mapped
from sunfleet.errors import Missing, NotYet, SunfleetError, Unfit
from sunfleet.model import Engine, Task

PROMPT = "Sunfleet asks whether you are awake."
TOKENS = 2
METRIC = {Task.GENERATE: "vllm:generation_tokens_total", Task.EMBED: "vllm:prompt_tokens_total"}
METRIC_PATIENCE = timedelta(seconds=5)
POLL = timedelta(milliseconds=250)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveReplica:
    """One engine, by its pod's address."""

    namespace: str
    engine: Engine
    served_name: str
    task: Task
    ip: str
    port: int = 8000


@dataclass(frozen=True, slots=True, kw_only=True)
class ProveEndpoint:
    """The engines behind the address that gateways get (with /v1)."""

    namespace: str
    engine: Engine
    served_name: str
    task: Task
    base_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A request of the model's task was answered."""

    at: datetime
    took: timedelta
    tokens: int | None = None  # by how much the engine's own counter rose; None through an endpoint


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainReplica:
    """Wait until the engine runs no request, or `patience` of real time is over."""

    namespace: str
    engine: Engine
    ip: str
    port: int = 8000
    patience: timedelta = timedelta(seconds=60)


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained:
    """`running` requests were left: 0 when all finished, None when the engine could not say."""

    running: int | None


class EngineActivities:
    """Proof and drain."""

    def __init__(self, cluster: Cluster, engine: EngineClient) -> None:
        self._cluster = cluster
        self._engine = engine

    @activity.defn
    @failures_mapped
    async def prove_replica(self, command: ProveReplica) -> Proof:
        """List exactly the wanted model, answer one request of its task, and count it.

        Health checks prove nothing: an engine can say 200 and die at the first token. Errors: Unfit for a wrong
        name, AccessDenied for a refused key, NotYet when the engine's own token counter did not rise.
        """
        at = await self._endpoint(command.namespace, command.engine, f"http://{command.ip}:{command.port}")
        name = METRIC.get(command.task)
        before = await self._engine.metric(at, name) if name else None
        began = datetime.now(UTC)
        await self._ask(at, command.served_name, command.task)
        took = datetime.now(UTC) - began
        rose = await self._rose(at, name, before) if name else None
        return Proof(at=datetime.now(UTC), took=took, tokens=rose)

    @activity.defn
    @failures_mapped
    async def prove_endpoint(self, command: ProveEndpoint) -> Proof:
        """The same through the published address, as a gateway would."""
        at = await self._endpoint(command.namespace, command.engine, command.base_url.removesuffix("/v1"))
        began = datetime.now(UTC)
        await self._ask(at, command.served_name, command.task)
        return Proof(at=datetime.now(UTC), took=datetime.now(UTC) - began)

    @activity.defn
    @failures_mapped
    async def drain_replica(self, command: DrainReplica) -> Drained:
        """Wait for running requests. An engine that is gone has none."""
        until = datetime.now(UTC) + command.patience
        at = Endpoint(base_url=f"http://{command.ip}:{command.port}")
        running: float | None = None
        while datetime.now(UTC) < until:
            try:
                running = await self._engine.metric(at, "vllm:num_requests_running")
                waiting = await self._engine.metric(at, "vllm:num_requests_waiting")
            except SunfleetError:
                return Drained(running=None)
            if not running and not waiting:
                return Drained(running=None if running is None else 0)
            activity.heartbeat({"running": running})
            await asyncio.sleep(POLL.total_seconds())
        return Drained(running=None if running is None else int(running))

    async def _ask(self, at: Endpoint, served_name: str, task: Task) -> None:
        listed = await self._engine.models(at)
        if listed != (served_name,):
            raise Unfit(
                f"the engine lists {', '.join(listed) or 'no model'}, wanted exactly {served_name}",
                hint="check servedName and what else answers at this address",
            )
        asks: dict[Task, Callable[[], Awaitable[object]]] = {
            Task.GENERATE: lambda: self._engine.complete(at, served_name, PROMPT, TOKENS),
            Task.EMBED: lambda: self._engine.embed(at, served_name, PROMPT),
        }
        if task not in asks:
            raise Unfit(f"no proof is known for task {task}")
        answer = await asks[task]()
        if task is Task.EMBED and not answer:
            raise NotYet("the engine answered an empty embedding")

    async def _rose(self, at: Endpoint, name: str, before: float | None) -> int | None:
        """How much the counter rose; engines publish it a moment after the answer."""
        deadline = datetime.now(UTC) + METRIC_PATIENCE
        while True:
            after = await self._engine.metric(at, name)
            if after is not None and after > (before or 0.0):
                return int(after - (before or 0.0))
            if datetime.now(UTC) >= deadline:
                raise NotYet(f"the engine answered, but {name} did not rise")
            await asyncio.sleep(POLL.total_seconds())

    async def _endpoint(self, namespace: str, engine: Engine, base_url: str) -> Endpoint:
        if not engine.key_secret:
            return Endpoint(base_url=base_url)
        secret = await self._cluster.get(SECRET, engine.key_secret, namespace)
        encoded = ((secret or {}).get("data") or {}).get(engine.key_name)
        key = base64.b64decode(encoded).decode().strip() if encoded else ""
        if not key:
            raise Missing(
                f"secret {engine.key_secret} in {namespace} has no {engine.key_name}",
                hint="an empty key would serve without authentication",
            )
        return Endpoint(base_url=base_url, key=key)
