"""A simulated LLM gateway: routes by what is published, with a lag, and never retries.

`PUT /admin/routes/{deployment}` takes a whole route set and says when it takes effect: after a propagation lag in
fleet time, as real gateways have. Users call `/{region}/v1/…`; a region is served by its own site alone. The gateway
owns the engines' key. Its state survives a kill.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from pydantic import TypeAdapter, ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sim.processes import free_port
from sunfleet.clock import FleetClock
from sunfleet.routes import Route as ModelRoute
from sunfleet.routes import RouteSet

BACKEND_TIMEOUT = httpx.Timeout(30.0, connect=2.0)
_SETS = TypeAdapter(RouteSet)


@dataclass(frozen=True, slots=True)
class Change:
    """A route set, and the fleet instant from which it is in effect."""

    routes: RouteSet
    effective_at: datetime


_CHANGES = TypeAdapter(list[Change])


class SimGateway:
    """The server. `url` is its base."""

    def __init__(
        self,
        *,
        clock: FleetClock,
        transport: httpx.AsyncBaseTransport,
        log: Path,
        state: Path | None = None,
        port: int | None = None,
        lag_seconds: float = 30.0,
        key: str = "",
    ) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._clock, self._lag = clock, timedelta(seconds=lag_seconds)
        self._http = httpx.AsyncClient(transport=transport, timeout=BACKEND_TIMEOUT)
        self._log_file, self._state, self._key = log, state, key
        self._changes: list[Change] = self._load()
        self.revision = len(self._changes)
        self.silent = False  # a fault: the admin API answers 503
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    def _load(self) -> list[Change]:
        if self._state is None or not self._state.exists():
            return []
        return _CHANGES.validate_json(self._state.read_text())

    def _save(self) -> None:
        if self._state is not None:
            temporary = self._state.with_suffix(".new")
            temporary.write_bytes(_CHANGES.dump_json(self._changes))
            temporary.rename(self._state)

    async def start(self) -> None:
        routes = [
            Route("/admin/routes/{deployment:path}", self.put_routes, methods=["PUT"]),
            Route("/admin/routes", self.get_routes),
            Route("/{region}/v1/models", self.models),
            Route("/{region}/v1/{rest:path}", self.forward, methods=["POST"]),
        ]
        self._log_file.parent.mkdir(parents=True, exist_ok=True)
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="critical", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server._serve())
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await asyncio.gather(self._task, return_exceptions=True)
        await self._http.aclose()

    def now(self) -> datetime:
        """Fleet time."""
        return self._clock.at(datetime.now(UTC))

    # The routes API.

    async def put_routes(self, request: Request) -> Response:
        """Take a whole set; an older version is acknowledged and ignored."""
        if self.silent:
            return JSONResponse({"error": "unavailable"}, status_code=503)
        try:
            routes = _SETS.validate_json(await request.body())
        except ValidationError as error:
            return JSONResponse({"error": str(error)}, status_code=400)
        if routes.deployment != request.path_params["deployment"]:
            return JSONResponse({"error": "the path names another deployment"}, status_code=400)
        newest = [c for c in self._changes if c.routes.deployment == routes.deployment]
        if newest and newest[-1].routes.version >= routes.version:
            return self._acknowledge(newest[-1].effective_at)
        change = Change(routes, self.now() + self._lag)
        kept = [c for c in self._changes if c.routes.deployment != routes.deployment or c is self._in_effect(newest)]
        self._changes = [*kept, change]
        self.revision += 1
        self._save()
        return self._acknowledge(change.effective_at)

    def _acknowledge(self, effective_at: datetime) -> Response:
        return JSONResponse({"gateway": "sim", "revision": self.revision, "effective_at": effective_at.isoformat()})

    async def get_routes(self, request: Request) -> Response:
        rows = [json.loads(_SETS.dump_json(c.routes)) for c in self._changes]
        return JSONResponse({"revision": self.revision, "routes": rows})

    def _in_effect(self, changes: list[Change]) -> Change | None:
        now = self.now()
        done = [c for c in changes if c.effective_at <= now]
        return done[-1] if done else None

    def routes(self, region: str) -> list[ModelRoute]:
        """What is in effect for a region now; expired routes are not."""
        now = self.now()
        found = []
        for deployment in dict.fromkeys(c.routes.deployment for c in self._changes):
            change = self._in_effect([c for c in self._changes if c.routes.deployment == deployment])
            found += [r for r in change.routes.routes if r.site == region and r.expires_at > now] if change else []
        return found

    # Users.

    async def models(self, request: Request) -> Response:
        rows = [{"id": r.served_name, "object": "model"} for r in self.routes(request.path_params["region"])]
        return JSONResponse({"object": "list", "data": rows})

    async def forward(self, request: Request) -> Response:
        """One try at the region's own site."""
        began = time.monotonic()
        region, rest = request.path_params["region"], request.path_params["rest"]
        content = await request.body()
        model = _model_of(content)
        note: dict[str, Any] = {"region": region, "model": model, "path": f"/v1/{rest}", "backend": ""}
        route = next((r for r in self.routes(region) if r.served_name == model), None)
        if route is None:
            self._log(note, 503, began, error="no route")
            return JSONResponse({"error": "no ready site"}, status_code=503, headers={"Retry-After": "30"})
        note["backend"] = route.base_url
        headers = {"Content-Type": "application/json", "User-Agent": request.headers.get("user-agent", "")}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        try:
            asked = self._http.build_request("POST", f"{route.base_url}/{rest}", content=content, headers=headers)
            answer = await self._http.send(asked, stream=True)
        except httpx.HTTPError as error:
            self._log(note, 502, began, error=type(error).__name__)
            return JSONResponse({"error": "the engine did not answer"}, status_code=502)
        return StreamingResponse(
            self._through(answer, note, began),
            status_code=answer.status_code,
            media_type=answer.headers.get("content-type"),
        )

    async def _through(self, answer: httpx.Response, note: dict[str, Any], began: float) -> AsyncIterator[bytes]:
        first, size, error, tail = 0.0, 0, "", b""
        try:
            async for piece in answer.aiter_raw():
                first = first or time.monotonic() - began
                size += len(piece)
                tail = (tail + piece)[-2000:]
                yield piece
        except httpx.HTTPError as broken:
            error = type(broken).__name__
        finally:
            await answer.aclose()
            streamed = "event-stream" in answer.headers.get("content-type", "")
            if streamed and not error and b"[DONE]" not in tail:
                error = "cut"
            tokens = _tokens(tail, streamed)
            self._log(
                note, answer.status_code, began, error=error, first=first, bytes=size, streamed=streamed, tokens=tokens
            )

    def _log(
        self, note: dict[str, Any], status: int, began: float, *, error: str = "", first: float = 0.0, **more: Any
    ) -> None:
        row = {"time": datetime.now(UTC).isoformat(), "status": status, "error": error} | note
        row |= {"ms_first": round(first * 1000, 1), "ms": round((time.monotonic() - began) * 1000, 1)} | more
        with self._log_file.open("a") as out:
            out.write(json.dumps(row) + "\n")


def _model_of(content: bytes) -> str:
    try:
        found = json.loads(content)
    except ValueError:
        return ""
    return str(found.get("model", "")) if isinstance(found, dict) else ""


def _tokens(tail: bytes, streamed: bool) -> int:
    """Tokens that an answer says it has; -1 when it does not say."""
    if streamed:
        return tail.count(b'"text"') + tail.count(b'"delta"')
    try:
        usage = json.loads(tail).get("usage", {})
    except (ValueError, AttributeError):
        return -1
    return int(usage.get("completion_tokens", usage.get("total_tokens", -1)))
