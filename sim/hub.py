"""A simulated Hugging Face Hub that the real `huggingface_hub` accepts (wire: hub 2.4, verified against it).

Repositories at pinned commits, gated ones, tokens, ranges, paging, and switchable faults. It counts what it serves,
so that a test can say "one download".
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from sim.processes import free_port

LFS_FROM = 64 * 1024  # larger files are in LFS storage, as on the Hub
CHUNK = 1 << 18
PAGE = 50


@dataclass(slots=True)
class Faults:
    """What goes wrong, from now on. `times` bounds the countable ones; -1 is for ever."""

    status: int = 0  # answer every request so
    retry_after: int = 0
    cut_after: int = 0  # bytes of a file, then the connection ends
    flip: str = ""  # a file whose first byte is wrong
    shorten: str = ""  # a file that is shorter than listed
    extra_path: str = ""  # listed besides: a hostile name
    hide: str = ""  # in the index, not in the tree
    bytes_per_second: int = 0
    elsewhere: str = ""  # redirect file bodies to this origin
    times: int = -1

    def due(self) -> bool:
        """Whether a countable fault strikes now."""
        if self.times == 0:
            return False
        self.times -= 1 if self.times > 0 else 0
        return True


@dataclass(slots=True)
class Repo:
    """One repository at one commit."""

    name: str
    revision: str
    files: dict[str, bytes | Path]
    gated: bool = False
    tokens: tuple[str, ...] = ()  # who may read; () is everyone
    digests: dict[str, tuple[int, str, str]] = field(default_factory=dict)  # path → size, sha256, git id

    def digest(self, path: str) -> tuple[int, str, str]:
        if path not in self.digests:
            content = self.files[path]
            data = content.read_bytes() if isinstance(content, Path) else content
            blob = hashlib.sha1(f"blob {len(data)}\0".encode() + data, usedforsecurity=False).hexdigest()
            self.digests[path] = (len(data), hashlib.sha256(data).hexdigest(), blob)
        return self.digests[path]

    def lfs(self, path: str) -> bool:
        return path.endswith(".safetensors") or self.digest(path)[0] >= LFS_FROM

    def etag(self, path: str) -> str:
        _, sha256, blob = self.digest(path)
        return sha256 if self.lfs(path) else blob


class SimHub:
    """The server. `url` is what HF_ENDPOINT would be."""

    def __init__(self, port: int | None = None) -> None:
        self.port = port or free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.faults = Faults()
        self.requests: Counter[str] = Counter()
        self.served: Counter[str] = Counter()  # bytes by repo/path
        self.downloads: Counter[str] = Counter()  # GETs by repo/path
        self.leaked_tokens = 0  # Authorization seen where it must not be
        self._repos: dict[str, Repo] = {}
        self._server: uvicorn.Server | None = None
        self._task: asyncio.Task[None] | None = None

    def add_repo(
        self,
        name: str,
        revision: str,
        files: Mapping[str, bytes] | Path,
        *,
        gated: bool = False,
        tokens: tuple[str, ...] = (),
    ) -> Repo:
        """A repository from contents or from a folder."""
        found: dict[str, bytes | Path] = (
            {str(p.relative_to(files)): p for p in sorted(files.rglob("*")) if p.is_file()}
            if isinstance(files, Path)
            else dict(files)
        )
        repo = self._repos[name] = Repo(name=name, revision=revision, files=found, gated=gated, tokens=tokens)
        return repo

    async def start(self) -> None:
        config = uvicorn.Config(self.app(), host="127.0.0.1", port=self.port, log_level="critical", lifespan="off")
        self._server = uvicorn.Server(config)
        self._task = asyncio.create_task(self._server._serve())
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.01)

    async def stop(self) -> None:
        if self._server is not None and self._task is not None:
            self._server.should_exit = self._server.force_exit = True
            await asyncio.gather(self._task, return_exceptions=True)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/api/models/{org}/{name}", self.info),
                Route("/api/models/{org}/{name}/revision/{revision}", self.info),
                Route("/api/models/{org}/{name}/tree/{revision}", self.tree),
                Route("/api/models/{org}/{name}/tree/{revision}/", self.tree),
                Route("/api/models/{org}/{name}/paths-info/{revision}", self.paths_info, methods=["POST"]),
                Route("/{org}/{name}/resolve/{revision}/{path:path}", self.resolve, methods=["GET", "HEAD"]),
                Route("/cdn/{org}/{name}/{path:path}", self.body, methods=["GET"]),
                Route("/sim/faults", self.set_faults, methods=["POST"]),
            ]
        )

    async def set_faults(self, request: Request) -> Response:
        self.faults = Faults(**await request.json())
        return JSONResponse({})

    # Guards.

    def _find(self, request: Request) -> tuple[Repo | None, Response | None]:
        """The repository, or the answer that refuses it."""
        self.requests[request.method] += 1
        if self.faults.status and self.faults.due():
            headers = {"Retry-After": str(self.faults.retry_after)} if self.faults.retry_after else {}
            if self.faults.status == 429:
                headers |= {
                    "RateLimit": '"resolvers";r=0;t=1',
                    "RateLimit-Policy": '"fixed window";"resolvers";q=1;w=300',
                }
            return None, _refusal(self.faults.status, "", "simulated", headers)
        name = f"{request.path_params['org']}/{request.path_params['name']}"
        repo = self._repos.get(name)
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if repo is None:
            return None, _refusal(404 if token else 401, "RepoNotFound", "Repository not found")
        if repo.gated and token not in repo.tokens:
            return None, _refusal(403 if token else 401, "GatedRepo", f"Access to model {name} is restricted")
        if repo.tokens and token not in repo.tokens:
            return None, _refusal(401, "RepoNotFound", "Invalid username or password.")
        revision = request.path_params.get("revision", repo.revision)
        if revision not in (repo.revision, "main"):
            return None, _refusal(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return repo, None

    # Routes.

    async def info(self, request: Request) -> Response:
        repo, refusal = self._find(request)
        if repo is None:
            return refusal or Response(status_code=500)
        siblings = [{"rfilename": p} for p in sorted(repo.files)]
        return JSONResponse({"id": repo.name, "modelId": repo.name, "sha": repo.revision, "siblings": siblings})

    async def tree(self, request: Request) -> Response:
        repo, refusal = self._find(request)
        if repo is None:
            return refusal or Response(status_code=500)
        paths = sorted(p for p in repo.files if p != self.faults.hide)
        if self.faults.extra_path:
            paths.append(self.faults.extra_path)
        start = int(request.query_params.get("cursor", "0"))
        rows = [self._entry(repo, p) for p in paths[start : start + PAGE]]
        headers = {}
        if start + PAGE < len(paths):
            url = f"{self.url}{request.url.path}?recursive=true&expand=false&cursor={start + PAGE}"
            headers["Link"] = f'<{url}>; rel="next"'
        return JSONResponse(rows, headers=headers)

    async def paths_info(self, request: Request) -> Response:
        repo, refusal = self._find(request)
        if repo is None:
            return refusal or Response(status_code=500)
        if request.headers.get("content-type", "").startswith("application/json"):
            asked = (await request.json()).get("paths") or []
        else:
            asked = [str(p) for p in (await request.form()).getlist("paths")]
        asked = [asked] if isinstance(asked, str) else asked
        return JSONResponse([self._entry(repo, p) for p in asked if p in repo.files])

    def _entry(self, repo: Repo, path: str) -> dict[str, Any]:
        if path not in repo.files:
            return {"type": "file", "path": path, "oid": "0" * 40, "size": 3}
        size, sha256, blob = repo.digest(path)
        row: dict[str, Any] = {"type": "file", "path": path, "oid": blob, "size": size}
        if repo.lfs(path):
            row["lfs"] = {"oid": sha256, "size": size, "pointerSize": 134}
        return row

    async def resolve(self, request: Request) -> Response:
        repo, refusal = self._find(request)
        if repo is None:
            return refusal or Response(status_code=500)
        path = request.path_params["path"]
        if path not in repo.files or path == self.faults.hide:
            return _refusal(404, "EntryNotFound", f"Entry not found: {path}")
        size, _, _ = repo.digest(path)
        headers = {"X-Repo-Commit": repo.revision, "ETag": f'"{repo.etag(path)}"', "Accept-Ranges": "bytes"}
        if repo.lfs(path):
            headers |= {"X-Linked-Etag": f'"{repo.etag(path)}"', "X-Linked-Size": str(size)}
        if request.method == "HEAD":
            if repo.lfs(path) and self.faults.elsewhere:
                location = f"{self.faults.elsewhere}/cdn/{repo.name}/{quote(path)}"
                return Response(status_code=302, headers=headers | {"Location": location})
            return Response(headers=headers | {"Content-Length": str(size)})
        return self._content(repo, path, request, headers)

    async def body(self, request: Request) -> Response:
        """Where file bodies come from: another origin on the Hub, so no credential belongs here."""
        self.requests["CDN"] += 1
        self.leaked_tokens += "authorization" in request.headers
        repo = self._repos.get(f"{request.path_params['org']}/{request.path_params['name']}")
        path = request.path_params["path"]
        if repo is None or path not in repo.files:
            return Response(status_code=404)
        return self._content(repo, path, request, {"Accept-Ranges": "bytes", "ETag": f'"{repo.etag(path)}"'})

    def _content(self, repo: Repo, path: str, request: Request, headers: dict[str, str]) -> Response:
        content = repo.files[path]
        data = content.read_bytes() if isinstance(content, Path) else content
        if self.faults.flip == path and self.faults.due():
            data = bytes([data[0] ^ 1]) + data[1:]
        if self.faults.shorten == path and self.faults.due():
            data = data[:-1]
        start, end, status = _range(request.headers.get("range", ""), len(data))
        if status == 206:
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(data)}"
        if status == 416:
            return Response(status_code=416, headers={"Content-Range": f"bytes */{len(data)}"})
        key = f"{repo.name}/{path}"
        self.downloads[key] += 1
        headers["Content-Length"] = str(end - start)
        return StreamingResponse(
            self._chunks(key, data[start:end]),
            status_code=status,
            headers=headers,
            media_type="application/octet-stream",
        )

    async def _chunks(self, key: str, data: bytes) -> AsyncIterator[bytes]:
        sent = 0
        for at in range(0, len(data), CHUNK):
            piece = data[at : at + CHUNK]
            if self.faults.cut_after and sent + len(piece) > self.faults.cut_after and self.faults.due():
                raise ConnectionResetError("simulated: the connection is cut")
            if self.faults.bytes_per_second:
                await asyncio.sleep(len(piece) / self.faults.bytes_per_second)
            sent += len(piece)
            self.served[key] += len(piece)
            yield piece


def _refusal(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    found = {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {}) | dict(headers or {})
    return Response(json.dumps({"error": message}), status_code=status, headers=found, media_type="application/json")


def _range(header: str, size: int) -> tuple[int, int, int]:
    """Start, end and status of a Range header."""
    if not header.startswith("bytes="):
        return 0, size, 200
    first, _, last = header.removeprefix("bytes=").partition("-")
    start = int(first or 0)
    end = min(int(last) + 1, size) if last else size
    return (start, end, 206) if start < size else (0, 0, 416)
