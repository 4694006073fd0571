"""The `EngineClient` port over HTTP, as vLLM serves it (OpenAI shapes; reference: vLLM 0.33 entrypoints).

The key goes into one header and nowhere else. Statuses: 401 AccessDenied, 404 and 400 Unfit, 503 Throttled (it
is asleep, paused or full), anything else and silence Unreachable.
"""

from __future__ import annotations

from typing import Any

import httpx
from prometheus_client.parser import text_string_to_metric_families

from activities import Endpoint
from sunfleet.errors import AccessDenied, SunfleetError, Throttled, Unfit, Unreachable

PATIENCE = httpx.Timeout(15.0, connect=3.0)
POOL = httpx.Limits(keepalive_expiry=2.0)  # servers end idle connections after 5 s: never race with that
GLANCE = httpx.Timeout(5.0, connect=3.0)


class HttpEngineClient:
    """One client for every engine of a site. `transport` replaces the network."""

    def __init__(self, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._http = httpx.AsyncClient(transport=transport, timeout=PATIENCE, limits=POOL, follow_redirects=False)

    async def close(self) -> None:
        await self._http.aclose()

    async def models(self, at: Endpoint) -> tuple[str, ...]:
        body = await self._json("GET", at, "/v1/models", timeout=GLANCE)
        return tuple(str(row["id"]) for row in body.get("data") or [])

    async def complete(self, at: Endpoint, model: str, prompt: str, max_tokens: int) -> str:
        asked = {"model": model, "prompt": prompt, "max_tokens": max_tokens, "temperature": 0}
        body = await self._json("POST", at, "/v1/completions", asked)
        choices = body.get("choices") or []
        if not choices:
            raise Unreachable("the engine answered without a choice")
        return str(choices[0].get("text", ""))

    async def embed(self, at: Endpoint, model: str, text: str) -> tuple[float, ...]:
        body = await self._json("POST", at, "/v1/embeddings", {"model": model, "input": text})
        rows = body.get("data") or []
        return tuple(float(x) for x in rows[0]["embedding"]) if rows else ()

    async def metric(self, at: Endpoint, name: str) -> float | None:
        response = await self._ask("GET", at, "/metrics", timeout=GLANCE)
        values = [
            sample.value
            for family in text_string_to_metric_families(response.text)
            for sample in family.samples
            if sample.name == name
        ]
        return sum(values) if values else None

    async def _json(
        self, method: str, at: Endpoint, path: str, body: Any = None, *, timeout: httpx.Timeout = PATIENCE
    ) -> dict[str, Any]:
        response = await self._ask(method, at, path, body, timeout=timeout)
        try:
            found = response.json()
        except ValueError:
            raise Unreachable(f"{path} answered something that is no JSON") from None
        if not isinstance(found, dict):
            raise Unreachable(f"{path} answered something that is no object")
        return found

    async def _ask(
        self, method: str, at: Endpoint, path: str, body: Any = None, *, timeout: httpx.Timeout = PATIENCE
    ) -> httpx.Response:
        headers = {"User-Agent": "sunfleet"} | ({"Authorization": f"Bearer {at.key}"} if at.key else {})
        try:
            response = await self._http.request(
                method, f"{at.base_url}{path}", json=body, headers=headers, timeout=timeout
            )
        except httpx.HTTPError as error:
            raise Unreachable(f"{at.base_url}{path} did not answer: {type(error).__name__}") from None
        if response.status_code != 200:
            raise _error(path, response)
        return response


def _error(path: str, response: httpx.Response) -> SunfleetError:
    said = _message(response)
    if response.status_code in (401, 403):
        return AccessDenied(f"{path}: the engine refused the key", hint="compare the Secret with the engine's own")
    if response.status_code in (400, 404, 422):
        return Unfit(f"{path}: {said}")
    if response.status_code == 503:
        return Throttled(f"{path}: {said}")
    return Unreachable(f"{path} answered {response.status_code}: {said}")


def _message(response: httpx.Response) -> str:
    try:
        error = response.json().get("error", "")
    except (ValueError, AttributeError):
        return response.text[:200]
    return str(error.get("message", "") if isinstance(error, dict) else error)[:300]
