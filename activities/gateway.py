"""Effects on LLM gateways: tell every one of them what to route, and learn when it takes effect."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from temporalio import activity

from activities import Gateway, RouteSet
from activities.failures import failures_mapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Every gateway has it. `effective_at` is the latest of theirs, in fleet time; None without gateways."""

    version: int
    effective_at: datetime | None
    gateways: int


class GatewayActivities:
    """Routes out to the gateways; runs on the control queue."""

    def __init__(self, gateways: Sequence[Gateway]) -> None:
        self._gateways = tuple(gateways)

    @activity.defn
    @failures_mapped
    async def publish_routes(self, routes: RouteSet) -> Published:
        """Publish a whole route set to each gateway. All or an error: one silent gateway is not enough."""
        answers = await asyncio.gather(*(g.publish(routes) for g in self._gateways))
        effective = max((a.effective_at for a in answers), default=None)
        return Published(version=routes.version, effective_at=effective, gateways=len(answers))
