"""A small Kubernetes client for the simulated parts: they stand in for programs that are not ours.

Plain JSON over the official client's connection settings; the same against a simulated and a real API server.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client as api
from kubernetes.aio import config as kubeconfig

Json = dict[str, Any]
STRATEGIC = "application/strategic-merge-patch+json"
MERGE = "application/merge-patch+json"
_NETWORK = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class ApiError(Exception):
    """The API server's answer with its code; 0 is no answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code


class ApiClient:
    """One API server by its kubeconfig."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._client: api.ApiClient | None = None

    async def _connected(self) -> api.ApiClient:
        if self._client is None:
            configuration = api.Configuration()
            await kubeconfig.load_kube_config(str(self._path), client_configuration=configuration, persist_config=False)
            configuration.retries = None  # the caller decides what is tried again
            configuration.connection_pool_maxsize = 200
            self._client = api.ApiClient(configuration)
        return self._client

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None

    async def call(
        self, method: str, path: str, body: Any = None, *, query: Json | None = None, content: str = ""
    ) -> Json:
        """One request. Errors: ApiError."""
        client = await self._connected()
        url = f"{client.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            response = await client.rest_client.request(
                method, url, headers=await self._headers(client, path, content), body=body, _request_timeout=10
            )
            data = await response.read()
        except api.ApiException as error:
            raise ApiError(int(error.status or 0), str(error.body)[:300]) from None
        except _NETWORK as error:
            raise ApiError(0, type(error).__name__) from None
        if response.status >= 300:
            raise ApiError(response.status, data.decode(errors="replace")[:300])
        found: Json = json.loads(data) if data else {}
        return found

    async def _headers(self, client: api.ApiClient, path: str, content: str) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "sim"}
        if content:
            headers["Content-Type"] = content
        await client.update_params_for_auth(headers, [], ["BearerToken"], path, "", None)
        return headers

    async def watch(self, path: str, query: Json, on_line: Callable[[Json], None]) -> None:
        """Follow a watch to its end. Errors: ApiError."""
        client = await self._connected()
        if client.rest_client.pool_manager is None:
            client.rest_client.pool_manager = client.rest_client._create_pool_manager()
        session: aiohttp.ClientSession = client.rest_client.pool_manager
        extra: Json = {}
        if client.configuration.tls_server_name:
            extra["server_hostname"] = client.configuration.tls_server_name
        url = f"{client.configuration.host}{path}?{urlencode(query)}"
        timeout = aiohttp.ClientTimeout(total=None, connect=10, sock_read=90)
        try:
            async with session.get(
                url, headers=await self._headers(client, path, ""), timeout=timeout, **extra
            ) as response:
                if response.status >= 300:
                    raise ApiError(response.status, (await response.text())[:300])
                async for line in response.content:
                    if line.strip():
                        on_line(json.loads(line))
        except _NETWORK as error:
            raise ApiError(0, type(error).__name__) from None


def path_of(version: str, plural: str, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The URL path of a resource."""
    root = "/api/v1" if version == "v1" else f"/apis/{version}"
    middle = f"/namespaces/{namespace}" if namespace else ""
    tail = f"/{name}" if name else ""
    return f"{root}{middle}/{plural}{tail}{f'/{subresource}' if subresource else ''}"


class Mirror:
    """A local copy of one kind of object, by list and watch."""

    def __init__(self, client: ApiClient, version: str, plural: str, namespace: str = "", *, field: str = "") -> None:
        self._client, self._path, self._field = client, path_of(version, plural, namespace), field
        self.objects: dict[str, Json] = {}
        self.synced = False

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow for ever; `changed` after each change."""
        while True:
            try:
                await self._once(changed)
            except ApiError as error:
                if error.code != 410:
                    await asyncio.sleep(0.25)

    async def _once(self, changed: Callable[[], None]) -> None:
        query: Json = {"fieldSelector": self._field} if self._field else {}
        page = await self._client.call("GET", self._path, query=query)
        self.objects = {_key(o): o for o in page.get("items") or []}
        self.synced = True
        changed()
        version = page["metadata"]["resourceVersion"]

        def take(event: Json) -> None:
            nonlocal version
            obj = event["object"]
            if event["type"] == "ERROR":
                raise ApiError(int(obj.get("code", 500)), str(obj.get("message")))
            version = obj["metadata"]["resourceVersion"]
            if event["type"] == "DELETED":
                self.objects.pop(_key(obj), None)
            elif event["type"] != "BOOKMARK":
                self.objects[_key(obj)] = obj
            if event["type"] != "BOOKMARK":
                changed()

        while True:
            follow = query | {
                "watch": "true",
                "resourceVersion": version,
                "allowWatchBookmarks": "true",
                "timeoutSeconds": 240,
            }
            await self._client.watch(self._path, follow, take)


def _key(obj: Json) -> str:
    meta = obj["metadata"]
    return f"{meta.get('namespace', '')}/{meta['name']}"
