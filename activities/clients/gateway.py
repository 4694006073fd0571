"""The `Gateway` port over HTTP: one PUT of a deployment's whole route set (the routes API of Sunfleet)."""

from __future__ import annotations

from urllib.parse import quote

import httpx
from pydantic import TypeAdapter, ValidationError

from activities import Acknowledged, RouteSet
from sunfleet.errors import AccessDenied, Unreachable

PATIENCE = httpx.Timeout(6.0, connect=2.0)
POOL = httpx.Limits(keepalive_expiry=2.0)  # servers end idle connections after 5 s: never race with that
_ROUTES = TypeAdapter(RouteSet)
_ANSWER = TypeAdapter(Acknowledged)


class HttpGateway:
    """One gateway. The key goes into one header and nowhere else."""

    def __init__(
        self, name: str, url: str, *, key: str | None = None, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self.name = name
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._http = httpx.AsyncClient(
            base_url=url, headers=headers, timeout=PATIENCE, limits=POOL, transport=transport
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def publish(self, routes: RouteSet) -> Acknowledged:
        path = f"/admin/routes/{quote(routes.deployment, safe='')}"
        try:
            response = await self._http.put(path, json=_ROUTES.dump_python(routes, mode="json"))
        except httpx.HTTPError as error:
            raise Unreachable(f"gateway {self.name} did not answer: {type(error).__name__}") from None
        if response.status_code in (401, 403):
            raise AccessDenied(f"gateway {self.name} refused the key")
        if response.status_code != 200:
            raise Unreachable(f"gateway {self.name} answered {response.status_code}")
        try:
            return _ANSWER.validate_json(response.content)
        except ValidationError:
            raise Unreachable(f"gateway {self.name} answered something else than an acknowledgement") from None
