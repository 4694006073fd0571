"""The engine's HTTP server. See vLLM 0.33 `vllm/entrypoints` for the shapes and what is guarded."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from sim.engine.options import FAULTS, EngineOptions, refusal, size_of

VERSION = "0.33.0"
GUARDED = ("/v1", "/v2", "/inference", "/cohere")
SLOW_SECONDS = 3.0
SILENT_SECONDS = 3600.0


class SimEngine:
    """One engine: its counters, its switchable fault, its log."""

    def __init__(self, options: EngineOptions) -> None:
        self.options = options
        self.fault = options.fault
        self.answered = 0
        self.prompt_tokens = 0
        self.generation_tokens = 0
        self.running = 0
        self.asleep = False
        self.draining = False
        self.dead = asyncio.Event()
        self.began = time.time()
        self.app = _Guard(self, Starlette(routes=self._routes()))

    def _routes(self) -> list[Route]:
        routes = [
            Route("/health", self.health),
            Route("/ping", self.health, methods=["GET", "POST"]),
            Route("/version", self.version),
            Route("/v1/models", self.models),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chat, methods=["POST"]),
            Route("/tokenize", self.tokenize, methods=["POST"]),
            Route("/metrics", self.metrics),
            Route("/sim/fault", self.set_fault, methods=["POST"]),
        ]
        if self.options.embed:
            routes.append(Route("/v1/embeddings", self.embeddings, methods=["POST"]))
        if self.options.sleep:
            routes += [
                Route("/sleep", self.sleep, methods=["POST"]),
                Route("/wake_up", self.wake_up, methods=["POST"]),
                Route("/is_sleeping", self.is_sleeping),
            ]
        return routes

    # Routes without a key.

    async def health(self, request: Request) -> Response:
        return Response(status_code=503 if self.dead.is_set() else 200)

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def tokenize(self, request: Request) -> Response:
        body = await request.json()
        tokens = [ord(c) % 256 for c in str(body.get("prompt", ""))]
        return JSONResponse({"count": len(tokens), "max_model_len": self.options.max_model_len, "tokens": tokens})

    async def metrics(self, request: Request) -> Response:
        labels = f'{{engine="0",model_name="{self.options.served_names[0]}"}}'
        asleep = 1 if self.asleep else 0
        rows: list[tuple[str, str, str, float]] = [
            ("counter", "vllm:prompt_tokens_total", labels, self.prompt_tokens),
            ("counter", "vllm:generation_tokens_total", labels, self.generation_tokens),
            ("counter", "vllm:request_success_total", labels[:-1] + ',finished_reason="length"}', self.answered),
            ("gauge", "vllm:num_requests_running", labels, self.running),
            ("gauge", "vllm:num_requests_waiting", labels, 0),
            ("gauge", "vllm:kv_cache_usage_perc", labels, 0.0),
            ("gauge", "vllm:engine_sleep_state", labels[:-1] + ',sleep_state="awake"}', 1 - asleep),
            ("gauge", "process_start_time_seconds", "", self.began),
        ]
        lines = []
        for kind, name, given, value in rows:
            base = name.removesuffix("_total") if kind == "counter" else name
            lines += [f"# HELP {base} simulated", f"# TYPE {base} {kind}", f"{name}{given} {float(value)}"]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")

    async def set_fault(self, request: Request) -> Response:
        mode = str((await request.json()).get("mode", ""))
        if mode not in FAULTS:
            return JSONResponse({"error": f"no fault {mode}"}, status_code=400)
        self.fault = mode
        return JSONResponse({"mode": mode})

    # Guarded routes.

    async def models(self, request: Request) -> Response:
        names = ("another-model",) if self.fault == "wrong_name" else self.options.served_names
        rows: list[dict[str, Any]] = [
            {
                "id": name,
                "object": "model",
                "created": int(self.began),
                "owned_by": "vllm",
                "root": str(self.options.model),
                "parent": None,
                "max_model_len": self.options.max_model_len,
                "permission": [],
            }
            for name in names
        ]
        return JSONResponse({"object": "list", "data": rows})

    async def completions(self, request: Request) -> Response:
        return await self._generate(request, "text_completion", "cmpl")

    async def chat(self, request: Request) -> Response:
        return await self._generate(request, "chat.completion", "chatcmpl")

    async def embeddings(self, request: Request) -> Response:
        body = await _body(request)
        if body is None:
            return _error(400, "the body is not a JSON object", "BadRequestError")
        if (problem := self._problem(body)) is not None:
            return problem
        await self._suffer()
        text = json.dumps(body.get("input"))
        self.prompt_tokens += len(text.split()) + 1
        self.answered += 1
        vector = [b / 255 - 0.5 for b in hashlib.sha256(text.encode()).digest()]
        usage = {"prompt_tokens": len(text.split()), "total_tokens": len(text.split())}
        request.state.tokens = len(text.split())
        return JSONResponse(
            {
                "object": "list",
                "model": self._named(body),
                "data": [{"object": "embedding", "index": 0, "embedding": vector}],
                "usage": usage,
            }
        )

    async def _generate(self, request: Request, kind: str, prefix: str) -> Response:
        body = await _body(request)
        if body is None:
            return _error(400, "the body is not a JSON object", "BadRequestError")
        if (problem := self._problem(body)) is not None:
            return problem
        prompt = str(body.get("prompt") or json.dumps(body.get("messages") or ""))
        wanted = int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        if len(prompt.split()) + wanted > self.options.max_model_len:
            return _error(400, "This model's maximum context length is exceeded.", "BadRequestError")
        streamed = bool(body.get("stream"))
        request.state.streamed = streamed
        await self._suffer()
        count = 0 if self.fault == "empty_text" else wanted
        self.prompt_tokens += len(prompt.split())
        named = {"id": f"{prefix}-{self.answered}", "object": kind, "created": int(time.time())}
        named["model"] = self._named(body)
        if streamed:
            with_usage = bool((body.get("stream_options") or {}).get("include_usage"))
            events = self._stream(request, named, kind, count, len(prompt.split()), with_usage)
            return StreamingResponse(events, media_type="text/event-stream")
        with self._busy():
            for _ in range(count):
                await asyncio.sleep(self.options.token_seconds)
                self._token()
        self._done(request, count)
        usage = {
            "prompt_tokens": len(prompt.split()),
            "completion_tokens": count,
            "total_tokens": len(prompt.split()) + count,
        }
        return JSONResponse(named | {"choices": [_choice(kind, " word" * count, "length")], "usage": usage})

    async def _stream(
        self, request: Request, named: dict[str, Any], kind: str, count: int, prompt: int, with_usage: bool
    ) -> AsyncIterator[str]:
        chunk = named | {"object": "chat.completion.chunk" if kind == "chat.completion" else kind}
        sent = 0
        with self._busy():
            for index in range(count):
                await asyncio.sleep(self.options.token_seconds)
                if self.dead.is_set():
                    return
                self._token()
                sent += 1
                reason = "length" if index == count - 1 else None
                yield f"data: {json.dumps(chunk | {'choices': [_delta(kind, ' word', reason)]})}\n\n"
        self._done(request, sent)
        if with_usage:
            usage = {"prompt_tokens": prompt, "completion_tokens": sent, "total_tokens": prompt + sent}
            yield f"data: {json.dumps(chunk | {'choices': [], 'usage': usage})}\n\n"
        yield "data: [DONE]\n\n"

    def _named(self, body: dict[str, Any]) -> str:
        return str(body.get("model") or self.options.served_names[0])

    def _problem(self, body: dict[str, Any]) -> Response | None:
        name, names = body.get("model"), self.options.served_names
        if name and name not in names:
            said = f"The model `{name}` does not exist. Valid aliases: {', '.join(names)}."
            return _error(404, said, "NotFoundError", param="model")
        if self.asleep:
            return _error(503, "Generation is paused. Please retry after it resumes.", "engine_paused")
        if self.draining:
            return _error(500, "the request was aborted: the engine is shutting down", "InternalServerError")
        if self.fault == "zombie":
            return _error(500, "EngineCore encountered an issue.", "InternalServerError")
        return None

    async def _suffer(self) -> None:
        """The fault of the day."""
        if self.fault == "dead_at_first_token":
            with self._busy():
                await asyncio.sleep(SILENT_SECONDS)
        if self.fault == "slow":
            await asyncio.sleep(SLOW_SECONDS)
        if self.fault == "dies_after" and self.answered >= self.options.fault_after:
            self.dead.set()
            await asyncio.sleep(SILENT_SECONDS)

    @contextlib.contextmanager
    def _busy(self) -> Any:
        self.running += 1
        try:
            yield
        finally:
            self.running -= 1

    def _token(self) -> None:
        self.generation_tokens += 1

    def _done(self, request: Request, tokens: int) -> None:
        self.answered += 1
        request.state.tokens = tokens

    # Sleep.

    async def sleep(self, request: Request) -> Response:
        level = request.query_params.get("level", "1")
        if level not in ("0", "1", "2"):
            return _error(400, "level must be 0, 1 or 2", "BadRequestError")
        self.asleep = True
        return JSONResponse({"status": "sleeping", "level": int(level)})

    async def wake_up(self, request: Request) -> Response:
        self.asleep = False
        return JSONResponse({"status": "awake", "tags": None})

    async def is_sleeping(self, request: Request) -> Response:
        return JSONResponse({"is_sleeping": self.asleep})

    # Life.

    def log(self, event: str, **given: Any) -> None:
        """One line of the access log (docs/simulation.md, Logs)."""
        if self.options.access_log is None:
            return
        row = {
            "time": datetime.now(UTC).isoformat(),
            "event": event,
            "pod": self.options.pod,
            "site": self.options.site,
            "model": self.options.served_names[0],
            "gpus": self.options.gpus,
        } | given
        with self.options.access_log.open("a") as out:
            out.write(json.dumps(row) + "\n")

    async def load(self) -> None:
        """Take as long as the weights are large. Errors: SystemExit with vLLM's words."""
        if self.fault == "exit_at_start":
            raise SystemExit("RuntimeError: Engine core initialization failed. See root cause above.")
        if why := refusal(self.options):
            raise SystemExit(why)
        if self.fault == "never_loads":
            await asyncio.sleep(SILENT_SECONDS)
        await asyncio.sleep(self.options.start_seconds + size_of(self.options.model) / self.options.load_rate)

    async def serve(self, stop: asyncio.Event) -> None:
        """Load, listen until `stop` or death, then drain for `shutdown_timeout`; 0 aborts at once."""
        self.log("start")
        await self.load()
        config = uvicorn.Config(
            self.app,
            host=self.options.host,
            port=self.options.port,
            log_level="error",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(server._serve() if hasattr(server, "_serve") else server.serve())
        while not server.started and not serving.done():
            await asyncio.sleep(0.01)
        self.log("ready")
        waits = [asyncio.create_task(stop.wait()), asyncio.create_task(self.dead.wait())]
        await asyncio.wait([*waits, serving], return_when=asyncio.FIRST_COMPLETED)
        await self._drain()
        for task in waits:
            task.cancel()
        server.should_exit = server.force_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        self.log("stop")
        if self.dead.is_set():
            raise SystemExit(1)

    async def _drain(self) -> None:
        """New requests are refused; running ones may finish. /health stays 200."""
        self.draining = True
        deadline = time.monotonic() + self.options.shutdown_timeout
        while self.running and not self.dead.is_set() and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        if self.running:
            self.dead.set() if self.options.shutdown_timeout == 0 else None


class _Guard:
    """The bearer check of vLLM's middleware, and the access log around everything."""

    def __init__(self, engine: SimEngine, inner: ASGIApp) -> None:
        self._engine, self._inner = engine, inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        began, status = time.monotonic(), 0
        scope.setdefault("state", {})

        async def noting(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        path = scope["path"]
        if path.startswith(GUARDED) and scope["method"] != "OPTIONS" and not self._allowed(scope):
            await JSONResponse({"error": "Unauthorized"}, status_code=401)(scope, receive, noting)
        else:
            await self._inner(scope, receive, noting)
        if path.startswith("/v1"):
            self._note(scope, path, status, time.monotonic() - began)

    def _allowed(self, scope: Scope) -> bool:
        keys = self._engine.options.keys
        if not keys:
            return True
        given = dict(scope["headers"]).get(b"authorization", b"").decode()
        right = given.removeprefix("Bearer ") in keys and given.startswith("Bearer ")
        return right and self._engine.fault != "refuses_key"

    def _note(self, scope: Scope, path: str, status: int, seconds: float) -> None:
        state = scope.get("state", {})
        self._engine.log(
            "request",
            path=path,
            status=status,
            tokens=state.get("tokens", 0),
            ms=round(seconds * 1000, 1),
            streamed=bool(state.get("streamed")),
            user_agent=dict(scope["headers"]).get(b"user-agent", b"").decode(),
        )


async def _body(request: Request) -> dict[str, Any] | None:
    try:
        found = await request.json()
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _error(status: int, message: str, kind: str, *, param: str | None = None) -> Response:
    body = {"error": {"message": message, "type": kind, "param": param, "code": status}}
    return JSONResponse(body, status_code=status)


def _choice(kind: str, text: str, reason: str) -> dict[str, Any]:
    said = {"message": {"role": "assistant", "content": text}} if kind == "chat.completion" else {"text": text}
    return {"index": 0, "logprobs": None, "finish_reason": reason} | said


def _delta(kind: str, text: str, reason: str | None) -> dict[str, Any]:
    said: dict[str, Any] = {"delta": {"content": text}} if kind == "chat.completion" else {"text": text}
    return {"index": 0, "logprobs": None, "finish_reason": reason} | said
