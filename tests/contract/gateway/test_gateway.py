"""One contract for gateways, through our own client. The simulation now; another gateway joins as a second kind."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from activities import Route, RouteSet
from activities.clients.gateway import HttpGateway
from sim.gateway import SimGateway
from sunfleet.clock import FleetClock
from sunfleet.errors import Unreachable

DEPLOYMENT = "model/tokyo/llm/chat"
ORIGIN = datetime(2026, 11, 2, tzinfo=UTC)
KEY = "engine-key"


@dataclass(slots=True)
class Lab:
    gateway: SimGateway
    client: HttpGateway
    asked: list[httpx.Request]
    folder: Path

    def routes(self, version: int, *, replicas: int = 1, life: timedelta = timedelta(hours=5)) -> RouteSet:
        route = Route(
            model="chat",
            site="tokyo",
            base_url="https://ap1.example.net/chat/v1",
            served_name="chat",
            replicas=replicas,
            state="Unknown",
            proven_at=ORIGIN,
            expires_at=self.gateway.now() + life,
        )
        return RouteSet(deployment=DEPLOYMENT, version=version, routes=(route,) if replicas else ())

    async def ask(self, region: str = "tokyo", model: str = "chat") -> httpx.Response:
        async with httpx.AsyncClient(headers={"User-Agent": "sim-load"}) as http:
            return await http.post(f"{self.gateway.url}/{region}/v1/completions", json={"model": model, "prompt": "x"})

    def log(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / "log.jsonl").read_text().splitlines()]


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    """Fleet time runs a thousand times as fast: the lag of 30 s is 30 ms."""
    asked: list[httpx.Request] = []

    def engine(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(200, stream=httpx.ByteStream(b'{"usage": {"completion_tokens": 3}}'))

    clock = FleetClock(real_origin=datetime.now(UTC), fleet_origin=ORIGIN, rate=1000)
    gateway = SimGateway(
        clock=clock,
        transport=httpx.MockTransport(engine),
        log=tmp_path / "log.jsonl",
        state=tmp_path / "state.json",
        key=KEY,
    )
    await gateway.start()
    client = HttpGateway("main", gateway.url)
    yield Lab(gateway, client, asked, tmp_path)
    await client.close()
    await gateway.stop()


async def _in_effect(lab: Lab, at: datetime) -> None:
    while lab.gateway.now() < at:
        await lab.ask("nobody")


async def test_a_route_takes_effect_when_the_gateway_says(lab: Lab) -> None:
    before = lab.gateway.now()
    answer = await lab.client.publish(lab.routes(1))
    assert answer.effective_at >= before + timedelta(seconds=30)
    await _in_effect(lab, answer.effective_at)
    assert (await lab.ask()).status_code == 200
    assert str(lab.asked[-1].url) == "https://ap1.example.net/chat/v1/completions"
    assert lab.asked[-1].headers["authorization"] == f"Bearer {KEY}"
    assert lab.asked[-1].headers["user-agent"] == "sim-load"


async def test_an_older_version_is_acknowledged_and_ignored(lab: Lab) -> None:
    newest = await lab.client.publish(lab.routes(5))
    again = await lab.client.publish(lab.routes(4, replicas=0))
    assert (again.revision, again.effective_at) == (newest.revision, newest.effective_at)
    await _in_effect(lab, newest.effective_at)
    assert (await lab.ask()).status_code == 200


async def test_the_same_set_again_changes_nothing(lab: Lab) -> None:
    first = await lab.client.publish(lab.routes(1))
    assert await lab.client.publish(lab.routes(1)) == first


async def test_an_empty_set_withdraws_and_the_old_one_serves_until_then(lab: Lab) -> None:
    await _in_effect(lab, (await lab.client.publish(lab.routes(1))).effective_at)
    gone = await lab.client.publish(lab.routes(2, replicas=0))
    await _in_effect(lab, gone.effective_at)
    answer = await lab.ask()
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0


async def test_an_expired_route_is_dropped_by_itself(lab: Lab) -> None:
    """If all of us are gone for long, a gateway does not send to what may not be there."""
    answer = await lab.client.publish(lab.routes(1, life=timedelta(minutes=10)))
    await _in_effect(lab, answer.effective_at + timedelta(minutes=11))
    assert (await lab.ask()).status_code == 503


async def test_a_region_is_served_by_its_own_site_alone(lab: Lab) -> None:
    await _in_effect(lab, (await lab.client.publish(lab.routes(1))).effective_at)
    assert (await lab.ask("oregon")).status_code == 503
    assert (await lab.ask("tokyo", "other")).status_code == 503


async def test_routes_survive_a_kill(lab: Lab) -> None:
    await lab.client.publish(lab.routes(3))
    again = SimGateway(
        clock=FleetClock(),
        transport=httpx.MockTransport(lambda r: httpx.Response(500)),
        log=lab.folder / "l",
        state=lab.folder / "state.json",
    )
    assert [c.routes.version for c in again._changes] == [3]


async def test_a_silent_gateway_is_unreachable(lab: Lab) -> None:
    lab.gateway.silent = True
    with pytest.raises(Unreachable):
        await lab.client.publish(lab.routes(1))
    with pytest.raises(Unreachable):
        await HttpGateway("gone", "http://127.0.0.1:9").publish(lab.routes(1))


async def test_what_users_saw_is_in_the_log(lab: Lab) -> None:
    await _in_effect(lab, (await lab.client.publish(lab.routes(1))).effective_at)
    await lab.ask()
    row = lab.log()[-1]
    assert (row["region"], row["model"], row["status"], row["tokens"], row["error"]) == ("tokyo", "chat", 200, 3, "")
