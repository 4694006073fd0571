"""The HTTP side: URLs, verbs, options, watches, and the switches that make the server sick."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sim.cluster.controllers import Controllers
from sim.cluster.kinds import Json, Refused, Resource
from sim.cluster.store import Event, Store
from sim.processes import free_port

log = logging.getLogger(__name__)
BOOKMARK_SECONDS = 30.0
APPLY, STRATEGIC, MERGE = "apply-patch", "strategic-merge-patch", "merge-patch"


@dataclass(slots=True)
class Sickness:
    """What is wrong with the server, from now on."""

    status: int = 0  # every request is answered so
    retry_after: int = 0
    times: int = -1  # how often; -1 is for ever
    empty: str = ""  # lists of these resources, comma-separated, are empty
    expire_watches: bool = False  # each watch begins with a 410
    black_hole: bool = False  # watches say nothing at all
    forbidden: set[tuple[str, str]] = field(default_factory=set)  # (verb, resource)


class SimCluster:
    """One site's API server. `sickness` is switched by tests; `seen` is what it was asked."""

    def __init__(self, *, port: int | None = None, snapshot: Path | None = None, token: str = "sim-token") -> None:  # noqa: S107  # a simulated server's token
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.token = token
        self.store = Store(snapshot)
        self.sickness = Sickness()
        self.seen: set[tuple[str, str, tuple[str, ...]]] = set()
        self.refused = self.emptied = 0  # requests that the sickness answered, lists that it emptied
        self._watches = 0  # rises when those that run are cut
        self._server: uvicorn.Server | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        routes = [
            Route("/readyz", self.ready),
            Route("/api/v1/{rest:path}", self.handle, methods=["GET", "POST", "PATCH", "DELETE"]),
            Route("/apis/{group}/{version}/{rest:path}", self.handle, methods=["GET", "POST", "PATCH", "DELETE"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), host="127.0.0.1", port=self.port, log_level="critical", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._tasks = [asyncio.create_task(self._server._serve())]
        while not self._server.started and not self._tasks[0].done():
            await asyncio.sleep(0.01)
        self._tasks.append(asyncio.create_task(Controllers(self.store).run()))
        self._tasks[1].add_done_callback(_loud)

    async def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True
        for task in self._tasks[1:]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def drop_watches(self) -> None:
        """End every watch that runs, as a load balancer or a restart does."""
        self._watches += 1
        self.store.wake()

    def write_kubeconfig(self, path: Path) -> Path:
        """A kubeconfig for this server."""
        path.write_text(
            json.dumps(
                {
                    "apiVersion": "v1",
                    "kind": "Config",
                    "clusters": [{"name": "sim", "cluster": {"server": self.url}}],
                    "users": [{"name": "sim", "user": {"token": self.token}}],
                    "contexts": [{"name": "sim", "context": {"cluster": "sim", "user": "sim"}}],
                    "current-context": "sim",
                }
            )
        )
        path.chmod(0o600)
        return path

    async def ready(self, request: Request) -> Response:
        return Response("ok")

    async def handle(self, request: Request) -> Response:
        """One request of the API."""
        try:
            self._check_health()
            self._check_token(request)
            resource, namespace, name, sub = self._target(request)
            return await self._answer(request, resource, namespace, name, sub)
        except Refused as refused:
            headers = {"Retry-After": str(self.sickness.retry_after)} if refused.code in (429, 503) else {}
            return JSONResponse(refused.status(), status_code=refused.code, headers=headers)

    def _check_health(self) -> None:
        sick = self.sickness
        if sick.status and sick.times != 0:
            sick.times -= 1 if sick.times > 0 else 0
            self.refused += 1
            raise Refused(sick.status, "ServiceUnavailable", "simulated: the server is sick")

    def _check_token(self, request: Request) -> None:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            raise Refused(401, "Unauthorized", "Unauthorized")

    def _target(self, request: Request) -> tuple[Resource, str, str, str]:
        group = request.path_params.get("group")
        version = f"{group}/{request.path_params['version']}" if group else "v1"
        parts = request.path_params["rest"].strip("/").split("/")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            namespace, parts = parts[1], parts[2:]
        name = parts[1] if len(parts) > 1 else ""
        sub = parts[2] if len(parts) > 2 else ""
        resource = self.store.resource(version, parts[0])
        if sub and not (sub == "status" and resource.status):
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        if resource.namespaced and name and not namespace:
            raise Refused(404, "NotFound", "the server could not find the requested resource")
        return resource, namespace, name, sub

    async def _answer(self, request: Request, resource: Resource, namespace: str, name: str, sub: str) -> Response:
        query = request.query_params
        if request.method == "GET":
            if name:
                self._note("get", resource, ())
                return JSONResponse(self.store.get(resource, namespace, name))
            if query.get("watch") in ("true", "1"):
                return self._watch(resource, namespace, query)
            return self._list(resource, namespace, query)
        body = await _body(request)
        if request.method == "POST":
            self._note("create", resource, ())
            return JSONResponse(self.store.create(resource, namespace, body, _agent(request)), status_code=201)
        if request.method == "DELETE":
            self._note("delete", resource, tuple(sorted(body)))
            return JSONResponse(self.store.delete(resource, namespace, name, body))
        return self._patch(request, resource, namespace, name, sub, body)

    def _patch(self, request: Request, resource: Resource, namespace: str, name: str, sub: str, body: Json) -> Response:
        kind, status = request.headers.get("content-type", ""), sub == "status"
        if APPLY in kind:
            manager = request.query_params.get("fieldManager", "")
            if not manager:
                raise Refused(400, "BadRequest", "fieldManager is required for apply patch")
            force = request.query_params.get("force") == "true"
            self._note("apply", resource, ("force",) * force + ("status",) * status)
            done = self.store.apply(resource, namespace, name, body, manager, force=force, status=status)
            return JSONResponse(done)
        strategic = STRATEGIC in kind
        if not strategic and MERGE not in kind:
            raise Refused(415, "UnsupportedMediaType", f"the body of the request was in an unknown format: {kind}")
        if strategic and not resource.built_in:
            raise Refused(415, "UnsupportedMediaType", "strategic merge patch is not supported for custom resources")
        self._note("patch", resource, (("strategic",) if strategic else ("merge",)) + ("status",) * status)
        done = self.store.patch(
            resource, namespace, name, body, strategic=strategic, status=status, manager=_agent(request)
        )
        return JSONResponse(done)

    def _note(self, verb: str, resource: Resource, options: tuple[str, ...]) -> None:
        if (verb, resource.plural) in self.sickness.forbidden:
            raise Refused(403, "Forbidden", f"{resource.plural} is forbidden: cannot {verb}")
        self.seen.add((verb, resource.kind, options))

    # Lists and watches.

    def _list(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> Response:
        self._note("list", resource, tuple(k for k in ("labelSelector", "fieldSelector") if query.get(k)))
        items = [o for o in self.store.of(resource.plural, namespace) if _matches(o, query)]
        if resource.plural in self.sickness.empty.split(","):
            items = []
            self.emptied += 1
        limit, start = int(query.get("limit", "0")), int(query.get("continue") or "0")
        page = items[start : start + limit] if limit else items
        meta: Json = {"resourceVersion": str(self.store.version)}
        if limit and start + limit < len(items):
            meta["continue"] = str(start + limit)
        body = {"kind": f"{resource.kind}List", "apiVersion": resource.version, "metadata": meta, "items": page}
        return JSONResponse(body)

    def _watch(self, resource: Resource, namespace: str, query: Mapping[str, str]) -> Response:
        self._note("watch", resource, tuple(k for k in ("labelSelector", "allowWatchBookmarks") if query.get(k)))
        raw = query.get("resourceVersion", "")
        if raw and not raw.isdigit():
            raise Refused(400, "BadRequest", f'Invalid value: "{raw}": invalid resource version')
        events = self._events(resource, namespace, query, int(raw or self.store.version))
        return StreamingResponse(events, media_type="application/json")

    async def _events(
        self, resource: Resource, namespace: str, query: Mapping[str, str], version: int
    ) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        end = loop.time() + float(query.get("timeoutSeconds", "300"))
        matched: dict[str, bool] = {}
        watches = self._watches
        mark_at = loop.time() + BOOKMARK_SECONDS
        while loop.time() < end and watches == self._watches:
            if self.sickness.black_hole:
                await asyncio.sleep(0.5)
                continue
            if version < self.store.oldest or self.sickness.expire_watches:
                gone = Refused(410, "Expired", f"too old resource version: {version} ({self.store.oldest})")
                yield json.dumps({"type": "ERROR", "object": gone.status()}) + "\n"
                return
            waiting = self.store.changed.wait()
            for event in [e for e in self.store.history if e.version > version]:
                version = event.version
                if (line := _line(event, resource, namespace, query, matched)) is not None:
                    yield line
            if loop.time() >= mark_at:  # also on a busy server: what changes may be of other kinds
                mark_at = loop.time() + BOOKMARK_SECONDS
                if query.get("allowWatchBookmarks") == "true":
                    yield _bookmark(resource, version)
            with suppress(TimeoutError):
                await asyncio.wait_for(waiting, max(0.0, min(mark_at, end) - loop.time()))


def _bookmark(resource: Resource, version: int) -> str:
    meta = {"resourceVersion": str(version)}
    mark = {"kind": resource.kind, "apiVersion": resource.version, "metadata": meta}
    return json.dumps({"type": "BOOKMARK", "object": mark}) + "\n"


def _line(
    event: Event, resource: Resource, namespace: str, query: Mapping[str, str], matched: dict[str, bool]
) -> str | None:
    """An event as a watcher with these selectors sees it."""
    if event.resource != resource.plural:
        return None
    meta = event.object["metadata"]
    if namespace and meta.get("namespace") != namespace:
        return None
    fits, before = _matches(event.object, query), matched.get(meta["uid"], True)
    matched[meta["uid"]] = fits
    if not fits and (event.type == "ADDED" or not before):
        return None
    kind = "DELETED" if not fits else event.type
    return json.dumps({"type": kind, "object": event.object}) + "\n"


def _matches(obj: Json, query: Mapping[str, str]) -> bool:
    labels = obj["metadata"].get("labels") or {}
    for term in _terms(query.get("labelSelector", "")):
        if not _term_holds(term, labels):
            return False
    for term in [t for t in query.get("fieldSelector", "").split(",") if t]:
        path, _, wanted = term.partition("=")
        value: Any = obj
        for part in path.split("."):
            value = (value or {}).get(part)
        if str(value or "") != wanted.lstrip("="):
            return False
    return True


def _terms(selector: str) -> list[str]:
    """Comma-separated terms; commas inside parentheses belong to a set."""
    terms, depth, current = [], 0, ""
    for letter in selector:
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            terms.append(current)
            current = ""
        else:
            current += letter
    return [t.strip() for t in [*terms, current] if t.strip()]


def _term_holds(term: str, labels: Mapping[str, str]) -> bool:
    for word, wants in ((" notin ", False), (" in ", True)):
        if word in term:
            key, _, rest = term.partition(word)
            values = [v.strip() for v in rest.strip().strip("()").split(",")]
            return (labels.get(key.strip()) in values) is wants
    if "!=" in term:
        key, _, value = term.partition("!=")
        return labels.get(key) != value
    if "=" in term:
        key, _, value = term.partition("=")
        return labels.get(key) == value.lstrip("=")
    return term.removeprefix("!") not in labels if term.startswith("!") else term in labels


def _loud(task: asyncio.Task[None]) -> None:
    """A controller that died is a fault of the simulation: say so at once."""
    if not task.cancelled() and task.exception() is not None:
        log.error("the simulated controllers died", exc_info=task.exception())


async def _body(request: Request) -> Json:
    raw = await request.body()
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        raise Refused(400, "BadRequest", "the body is not JSON") from None
    if not isinstance(found, dict):
        raise Refused(400, "BadRequest", "the body is not an object")
    return found


def _agent(request: Request) -> str:
    return request.headers.get("user-agent", "unknown").split("/")[0]
