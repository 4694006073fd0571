"""Routes: what a gateway needs to send a request to one model at one site. Values and their wire names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One model at one site, with an end: a gateway drops it when nobody renews it."""

    model: str  # the model's name in the fleet
    site: str
    base_url: str  # with /v1
    served_name: str
    replicas: int
    state: str  # Free, Busy, SendBatch, Unknown
    proven_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteSet:
    """Every route of one deployment, whole; an older `version` is ignored. Empty withdraws all."""

    deployment: str
    version: int
    routes: tuple[Route, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Acknowledged:
    """What a gateway says to a route set: its own revision, and when the change takes effect (fleet time)."""

    gateway: str
    revision: int
    effective_at: datetime
