"""Users: an open-loop load by each region's local hour. Arrivals do not wait for answers, and nobody retries."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import httpx
from pydantic import BaseModel, ConfigDict, Field

from sunfleet.clock import FleetClock

OUTSTANDING = 200
PATIENCE = httpx.Timeout(40.0, connect=3.0)
AGENT = "sim-load"


class LoadSpec(BaseModel):
    """The users of one model in one region. Hours are local; `per_second` is per *real* second."""

    model_config = ConfigDict(extra="forbid")

    region: str
    zone: str
    model: str
    task: str = "generate"
    per_second: float = Field(gt=0, le=200)
    from_hour: float = 0.0
    until_hour: float = 24.0
    weekdays: tuple[int, ...] = (0, 1, 2, 3, 4, 5, 6)
    long_share: float = 0.1
    long_tokens: int = 300
    tokens: int = 4


class Load:
    """All of them. `dropped` counts arrivals that found too many outstanding: a fault of the load, not of the fleet."""

    def __init__(self, specs: list[LoadSpec], clock: FleetClock, url: str, *, seed: int) -> None:
        self._specs, self._clock, self._url = specs, clock, url
        self._seed = seed
        self.sent = self.dropped = 0
        self._outstanding: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        limits = httpx.Limits(max_connections=OUTSTANDING, max_keepalive_connections=50, keepalive_expiry=2.0)
        async with httpx.AsyncClient(
            base_url=self._url, timeout=PATIENCE, limits=limits, headers={"User-Agent": AGENT}
        ) as http:
            try:
                await asyncio.gather(*(self._users(http, s, i) for i, s in enumerate(self._specs)))
            finally:
                for task in self._outstanding:
                    task.cancel()

    async def _users(self, http: httpx.AsyncClient, spec: LoadSpec, index: int) -> None:
        """Poisson arrivals while the region's users are awake."""
        chance = random.Random(f"{self._seed}/{index}")
        while True:
            await asyncio.sleep(chance.expovariate(spec.per_second))
            if not awake(spec, self._clock.at(datetime.now(UTC))):
                continue
            if len(self._outstanding) >= OUTSTANDING:
                self.dropped += 1
                continue
            task = asyncio.create_task(self._ask(http, spec, chance.random() < spec.long_share))
            self._outstanding.add(task)
            task.add_done_callback(self._outstanding.discard)

    async def _ask(self, http: httpx.AsyncClient, spec: LoadSpec, long: bool) -> None:
        self.sent += 1
        path = f"/{spec.region}/v1/{'embeddings' if spec.task == 'embed' else 'completions'}"
        body: dict[str, object] = {"model": spec.model, "input": "hello"}
        if spec.task != "embed":
            body = {
                "model": spec.model,
                "prompt": "hello",
                "max_tokens": spec.long_tokens if long else spec.tokens,
                "stream": long,
            }
        with suppress(httpx.HTTPError):
            await http.post(path, json=body)


def awake(spec: LoadSpec, fleet: datetime) -> bool:
    """Whether the region's users ask at a fleet instant."""
    local = fleet.astimezone(ZoneInfo(spec.zone))
    hour = local.hour + local.minute / 60 + local.second / 3600
    if spec.from_hour <= spec.until_hour:
        return local.weekday() in spec.weekdays and spec.from_hour <= hour < spec.until_hour
    day = local if hour >= spec.from_hour else local - timedelta(days=1)
    return day.weekday() in spec.weekdays and (hour >= spec.from_hour or hour < spec.until_hour)
