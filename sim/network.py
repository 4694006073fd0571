"""The simulated network: documentation-range addresses mapped to local ports, by files that any process reads.

`NetworkTable` is a folder: one file per pod address, one per service. The kubelet writes the first kind, the
service proxy the second. `MappedTransport` is the one httpx transport that knows them; it chooses among ready
endpoints as kube-proxy would, and never lets a request leave this machine.
"""

from __future__ import annotations

import ipaddress
import itertools
import json
import os
import random
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

POD_RANGES = ("192.0.2.0/24", "203.0.113.0/24", "198.18.0.0/15")  # RFC 5737, RFC 2544
_LOOPBACK = ("127.0.0.1", "localhost", "::1")

# An engine ends a connection that idles for 5 s (vLLM's default, uvicorn's too): a client that would use it for just as
# long sends into the closing one now and then, and loses a request.
POOL = httpx.Limits(max_keepalive_connections=8, keepalive_expiry=2.0)


@dataclass(frozen=True, slots=True)
class Backend:
    """A ready endpoint of a service."""

    ip: str
    port: int


class NetworkTable:
    """The files. Writers replace whole files; readers see old or new, never half."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pods, self._services = folder / "pods", folder / "services"
        self._pods.mkdir(parents=True, exist_ok=True)
        self._services.mkdir(parents=True, exist_ok=True)

    # Pods.

    def assign(self, owner: str) -> str:
        """A pod address for an owner (its uid): the same one while it is kept, else one not used lately."""
        for file in self._pods.iterdir():
            if _read(file).get("owner") == owner:
                return file.stem
        for ip in self._candidates():
            file = self._pods / f"{ip}.json"
            try:
                with file.open("x") as out:
                    json.dump({"owner": owner, "ports": {}}, out)
            except FileExistsError:
                continue
            return ip
        raise RuntimeError("every pod address is in use")

    def _candidates(self) -> Iterator[str]:
        hosts = itertools.chain.from_iterable(ipaddress.ip_network(r).hosts() for r in POD_RANGES)
        return (str(h) for h in hosts)

    def map_port(self, ip: str, port: int, local: int) -> None:
        """What the pod calls `port` listens on the local one."""
        file = self._pods / f"{ip}.json"
        found = _read(file)
        found.setdefault("ports", {})[str(port)] = local
        _write(file, found)

    def local_port(self, ip: str, port: int) -> int | None:
        found = _read(self._pods / f"{ip}.json").get("ports", {}).get(str(port))
        return int(found) if found else None

    def release(self, ip: str) -> None:
        (self._pods / f"{ip}.json").unlink(missing_ok=True)

    # Services.

    def set_service(self, site: str, namespace: str, name: str, backends: tuple[Backend, ...]) -> None:
        rows = [[b.ip, b.port] for b in backends]
        _write(self._services / f"{site}_{namespace}_{name}.json", {"backends": rows})

    def drop_service(self, site: str, namespace: str, name: str) -> None:
        (self._services / f"{site}_{namespace}_{name}.json").unlink(missing_ok=True)

    def services(self, site: str) -> tuple[tuple[str, str], ...]:
        """(namespace, name) of a site's services in the table."""
        parts = [f.stem.split("_") for f in self._services.glob(f"{site}_*.json")]
        return tuple((p[1], p[2]) for p in parts)

    def backends(self, site: str, namespace: str, name: str) -> tuple[Backend, ...]:
        rows = _read(self._services / f"{site}_{namespace}_{name}.json").get("backends", [])
        return tuple(Backend(str(ip), int(port)) for ip, port in rows)

    # Published endpoints.

    def publish(self, site: str, namespace: str, template: str) -> None:
        """A site's endpoint template, such as `https://ap1.example.net/{deployment}/v1`."""
        _write(self.folder / f"endpoint_{site}.json", {"namespace": namespace, "template": template})

    def find_service(self, url: httpx.URL) -> tuple[tuple[Backend, ...], str] | None:
        """The backends behind a published endpoint or a cluster name, and the path that they get."""
        for file in self.folder.glob("endpoint_*.json"):
            row = _read(file)
            if (found := _match(row.get("template", ""), url)) is not None:
                deployment, rest = found
                site = file.stem.removeprefix("endpoint_")
                return self.backends(site, row["namespace"], deployment), rest
        return None


def _match(template: str, url: httpx.URL) -> tuple[str, str] | None:
    """The deployment that a URL under a template names, and the path below its prefix: `/v1/…`."""
    if not template:
        return None
    head, _, tail = template.partition("{deployment}")
    prefix = tail.removesuffix("/v1")
    pattern = re.escape(head) + r"(?P<deployment>[a-z0-9-]+)" + re.escape(prefix) + r"(?P<rest>/.*)?$"
    found = re.match(pattern, f"{url.scheme}://{url.netloc.decode()}{url.path}")
    return (found["deployment"], found["rest"] or "/") if found else None


class MappedTransport(httpx.AsyncBaseTransport):
    """An httpx transport for pods, services and published endpoints of the simulated network.

    Each backend has a connection pool of its own, keyed by pod address and local port: a port that another
    engine got later is another key.
    """

    def __init__(self, table: NetworkTable, seed: int | None = None) -> None:
        self._table = table
        self._random = random.Random(seed)
        self._pools: dict[tuple[str, int], httpx.AsyncHTTPTransport] = {}

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        key, path = self._resolve(request)
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = httpx.AsyncHTTPTransport(limits=POOL)
            self._forget_gone()
        target = request.url.copy_with(scheme="http", host="127.0.0.1", port=key[1], path=path)
        if request.url.query:
            target = target.copy_with(query=request.url.query)
        headers = [(k, v) for k, v in request.headers.raw if k.lower() != b"host"]
        inner = httpx.Request(
            request.method,
            target,
            headers=[*headers, (b"Host", request.url.netloc)],
            stream=request.stream,
            extensions=request.extensions,
        )
        return await pool.handle_async_request(inner)

    def _resolve(self, request: httpx.Request) -> tuple[tuple[str, int], str]:
        url = request.url
        if url.host in _LOOPBACK:
            return ("loopback", url.port or 80), url.path
        if _is_pod(url.host):
            return self._pod(url.host, url.port or 80, request), url.path
        found = self._table.find_service(url)
        if found is None:
            raise httpx.ConnectError(f"no route to {url.host}", request=request)
        backends, path = found
        if not backends:
            raise httpx.ConnectError(f"no ready endpoint behind {url.host}{url.path}", request=request)
        chosen = self._random.choice(backends)
        return self._pod(chosen.ip, chosen.port, request), path

    def _pod(self, ip: str, port: int, request: httpx.Request) -> tuple[str, int]:
        local = self._table.local_port(ip, port)
        if local is None:
            raise httpx.ConnectError(f"nothing at {ip}:{port}", request=request)
        return ip, local

    def _forget_gone(self) -> None:
        for ip, local in [k for k in self._pools if k[0] != "loopback"]:
            if not (self._table.folder / "pods" / f"{ip}.json").exists():
                del self._pools[ip, local]

    async def aclose(self) -> None:
        for pool in self._pools.values():
            await pool.aclose()
        self._pools.clear()


def _is_pod(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    return any(address in ipaddress.ip_network(r) for r in POD_RANGES)


def _read(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _write(file: Path, value: object) -> None:
    handle, name = tempfile.mkstemp(dir=file.parent, prefix=".", suffix=".tmp")
    with os.fdopen(handle, "w") as out:
        json.dump(value, out)
    Path(name).replace(file)
