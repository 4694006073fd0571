"""The `Cluster` port on the official `kubernetes` client (its asyncio half): JSON in, JSON out.

What is Permanent and what is Transient is decided here, from the status that the API server gives. Reads are
quorum reads (no resourceVersion=0). Watches have a server timeout and a client one, because a black-holed
connection says nothing. Credentials are read again once after a 401, and never appear in a message.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
from kubernetes.aio import client as api
from kubernetes.aio import config as kubeconfig

from activities import Expired, Kind, Listing, Object, WatchEvent
from sunfleet.errors import AccessDenied, Conflict, Missing, SunfleetError, Throttled, Unfit, Unreachable

PAGE = 500
CALL_TIMEOUT = 8.0  # seconds; shorter than any activity's
WATCH_SECONDS = 300
WATCH_SILENCE = 75.0  # seconds without an event or bookmark (the server sends one a minute)
APPLY = "application/apply-patch+yaml"
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
_TYPED = "failed to create typed patch object"  # an apply of a wrong type: the server says 500 to it
_NETWORK = (aiohttp.ClientError, ssl.SSLError, OSError, asyncio.TimeoutError)
RECORD = "SUNFLEET_RECORD_KUBERNETES"  # a file that gets each distinct (verb, kind, options), for the contract suite


class KubernetesCluster:
    """One API server. Make it with `from_kubeconfig`, close it with `close`."""

    def __init__(self, path: str, context: str | None) -> None:
        self._path, self._context = path, context
        self._api: api.ApiClient | None = None
        self._seen: set[str] = set()

    @classmethod
    async def from_kubeconfig(cls, path: str = "", context: str | None = None) -> KubernetesCluster:
        """By a kubeconfig file, or with "" by the pod's own service account."""
        cluster = cls(path, context)
        await cluster._load()
        return cluster

    async def _load(self) -> None:
        configuration = api.Configuration()
        try:
            if self._path:
                await kubeconfig.load_kube_config(
                    self._path, context=self._context, client_configuration=configuration, persist_config=False
                )
            else:
                kubeconfig.load_incluster_config(client_configuration=configuration)
        except (kubeconfig.ConfigException, OSError) as error:
            raise AccessDenied(f"no usable credentials for Kubernetes: {self._path or 'in-cluster'}") from error
        configuration.retries = None  # the caller decides what is tried again
        old, self._api = self._api, api.ApiClient(configuration)
        if old is not None:
            await old.close()

    async def close(self) -> None:
        if self._api is not None:
            await self._api.close()

    # The port.

    async def get(self, kind: Kind, name: str, namespace: str = "") -> Object | None:
        self._record("get", kind)
        try:
            return await self._call("GET", _path(kind, namespace, name))
        except Missing:
            return None

    async def list(self, kind: Kind, namespace: str = "", selector: str = "") -> Listing:
        self._record("list", kind, selector=selector)
        while True:
            try:
                return await self._list_pages(kind, namespace, selector)
            except Expired:
                continue  # a page's token grew too old: from the start

    async def _list_pages(self, kind: Kind, namespace: str, selector: str) -> Listing:
        items: list[Object] = []
        token = ""
        while True:
            query = {"limit": PAGE} | ({"labelSelector": selector} if selector else {})
            query |= {"continue": token} if token else {}
            page = await self._call("GET", _path(kind, namespace), query)
            found = page.get("items") or []
            for item in found:  # list items carry no type of their own
                item.setdefault("apiVersion", kind.api_version)
                item.setdefault("kind", kind.kind)
            items += found
            token = page["metadata"].get("continue") or ""
            if not token:
                return Listing(items=tuple(items), resource_version=str(page["metadata"]["resourceVersion"]))

    async def create(self, kind: Kind, body: Object) -> Object:
        self._record("create", kind)
        return await self._call("POST", _path(kind, _namespace(body)), body=body)

    async def apply(
        self, kind: Kind, body: Object, manager: str, *, force: bool = True, subresource: str = ""
    ) -> Object:
        self._record("apply", kind, force=force, subresource=subresource)
        path = _path(kind, _namespace(body), body["metadata"]["name"], subresource)
        query = {"fieldManager": manager, "force": str(force).lower()}
        return await self._call("PATCH", path, query, body, content=APPLY)

    async def patch(self, kind: Kind, name: str, body: Object, namespace: str = "", *, subresource: str = "") -> Object:
        content = MERGE if "." in kind.api_version.split("/")[0] and not _built_in(kind) else STRATEGIC
        self._record("patch", kind, content=content, subresource=subresource)
        return await self._call("PATCH", _path(kind, namespace, name, subresource), body=body, content=content)

    async def delete(
        self,
        kind: Kind,
        name: str,
        namespace: str = "",
        *,
        uid: str,
        grace_seconds: int | None = None,
        resource_version: str | None = None,
    ) -> bool:
        self._record("delete", kind, grace=grace_seconds is not None, resourceVersion=resource_version is not None)
        preconditions = {"uid": uid} | ({"resourceVersion": resource_version} if resource_version else {})
        body: Object = {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": preconditions,
            "propagationPolicy": "Background",
        }
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._call("DELETE", _path(kind, namespace, name), body=body)
        except Missing:
            return False
        except Conflict:
            if resource_version is not None:
                raise
            return False  # another object has the name now
        return True

    async def watch(
        self, kind: Kind, namespace: str, resource_version: str, selector: str = ""
    ) -> AsyncIterator[WatchEvent]:
        self._record("watch", kind, selector=selector)
        query: dict[str, Any] = {
            "watch": "true",
            "resourceVersion": resource_version,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": WATCH_SECONDS,
        } | ({"labelSelector": selector} if selector else {})
        async with aclosing(self._lines(_path(kind, namespace), query)) as lines:
            async for line in lines:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise _error(int(event["object"].get("code", 500)), event["object"], {})
                yield WatchEvent(type=event["type"], object=event["object"])

    # HTTP.

    async def _call(
        self, method: str, path: str, query: dict[str, Any] | None = None, body: Any = None, content: str = ""
    ) -> Object:
        try:
            return await self._once(method, path, query, body, content)
        except AccessDenied as error:
            if error.message.startswith("401"):
                await self._load()  # a rotated token: once
                return await self._once(method, path, query, body, content)
            raise

    async def _once(self, method: str, path: str, query: dict[str, Any] | None, body: Any, content: str) -> Object:
        client = self._client()
        url, headers = await self._address(client, path, query, content)
        try:
            response = await client.rest_client.request(
                method, url, headers=headers, body=body, _request_timeout=CALL_TIMEOUT
            )
            data = await response.read()
        except api.ApiException as error:
            raise _error(int(error.status or 0), _status(error.body), error.headers or {}) from None
        except _NETWORK as error:
            raise Unreachable(f"the API server did not answer {method} {path}: {type(error).__name__}") from None
        if response.status >= 300:
            raise _error(response.status, _status(data), response.getheaders() or {})
        return json.loads(data) if data else {}

    async def _lines(self, path: str, query: dict[str, Any]) -> AsyncGenerator[bytes, None]:
        """The lines of a watch. Silence longer than a bookmark's period is a lost connection."""
        client = self._client()
        url, headers = await self._address(client, path, query, "")
        timeout = aiohttp.ClientTimeout(total=None, connect=CALL_TIMEOUT, sock_read=WATCH_SILENCE)
        if client.rest_client.pool_manager is None:
            client.rest_client.pool_manager = client.rest_client._create_pool_manager()
        session: aiohttp.ClientSession = client.rest_client.pool_manager
        extra: dict[str, Any] = {}
        if client.configuration.tls_server_name:
            extra["server_hostname"] = client.configuration.tls_server_name
        try:
            async with session.get(url, headers=headers, timeout=timeout, **extra) as response:
                if response.status >= 300:
                    if response.status == 401:
                        await self._load()
                    raise _error(response.status, _status(await response.read()), dict(response.headers))
                async for line in response.content:
                    if line.strip():
                        yield line
        except _NETWORK as error:
            raise Unreachable(f"the watch of {path} broke: {type(error).__name__}") from None

    async def _address(
        self, client: api.ApiClient, path: str, query: dict[str, Any] | None, content: str
    ) -> tuple[str, dict[str, str]]:
        headers = {"Accept": "application/json", "User-Agent": "sunfleet"}
        if content:
            headers["Content-Type"] = content
        await client.update_params_for_auth(headers, [], ["BearerToken"], path, "", None)
        url = f"{client.configuration.host}{path}"
        return (f"{url}?{urlencode(query)}" if query else url), headers

    def _client(self) -> api.ApiClient:
        if self._api is None:
            raise Unreachable("the client is closed")
        return self._api

    def _record(self, verb: str, kind: Kind, **given: Any) -> None:
        """Note a distinct (verb, kind, options) when a test run asks for it."""
        if not (file := os.environ.get(RECORD)):
            return
        used = sorted(k for k, v in given.items() if v)
        row = json.dumps([verb, kind.kind, used])
        if row not in self._seen:
            self._seen.add(row)
            with Path(file).open("a") as out:
                out.write(row + "\n")


def _path(kind: Kind, namespace: str, name: str = "", subresource: str = "") -> str:
    root = "/api/v1" if kind.api_version == "v1" else f"/apis/{kind.api_version}"
    parts = [root]
    if kind.namespaced and namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(kind.plural)
    if name:
        parts.append(quote(name, safe=""))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def _namespace(body: Object) -> str:
    return str(body["metadata"].get("namespace", ""))


def _built_in(kind: Kind) -> bool:
    group = kind.api_version.split("/")[0]
    return "." not in group or group.endswith(".k8s.io")


def _status(data: bytes | str | None) -> dict[str, Any]:
    try:
        found = json.loads(data or b"{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _error(code: int, status: dict[str, Any], headers: Any) -> SunfleetError | Expired:
    """Our error for an API server's answer. Its message names objects, never credentials."""
    said = str(status.get("message") or status.get("reason") or "no message")[:500]
    reason = str(status.get("reason", ""))
    if code == 410 or reason == "Expired":
        return Expired(said)
    if code in (401, 403):
        return AccessDenied(f"{code} from the API server: {said}")
    if code == 404:
        return Missing(said)
    if code == 409:
        return Conflict(said)
    if code in (400, 405, 413, 415, 422) or said.startswith(_TYPED):
        return Unfit(f"the API server refused the object: {said}")
    if code in (429, 503):
        return Throttled(f"the API server is busy: {said}", retry_in=_retry_after(status, headers))
    return Unreachable(f"the API server answered {code}: {said}")


def _retry_after(status: dict[str, Any], headers: Any) -> timedelta:
    seconds = (status.get("details") or {}).get("retryAfterSeconds")
    if seconds is None and headers:
        seconds = {str(k).lower(): v for k, v in dict(headers).items()}.get("retry-after")
    try:
        return timedelta(seconds=min(60.0, float(seconds or 1)))
    except ValueError:
        return timedelta(seconds=1)
