"""Hand-made views for tests of what people see: one fleet, one site, one model."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from console.overview import Overview, Row, SiteOverview
from sunfleet.ledger import Ledger
from sunfleet.messages import DeploymentStatusView, Edge, FleetStatusView, Health, ReplicaStatus, SiteStatusView
from sunfleet.residency import Phase
from sunfleet.warmth import Target, Warmth

NOW = datetime(2026, 11, 2, 6, 41, tzinfo=UTC)  # Monday, 07:41 in Frankfurt
GPU = "nvidia.com/gpu"
HOUR = timedelta(hours=1)


def replica(phase: Phase, rung: Warmth = Warmth.HOT, key: str = "k1") -> ReplicaStatus:
    return ReplicaStatus(
        key=key, hold=f"h-{key}", node="n1", phase=phase, rung=rung, since=NOW, leaving=phase is Phase.LEAVING
    )


def deployment(**given: Any) -> DeploymentStatusView:
    """A model that is two hot, as wanted, until the evening."""
    base = DeploymentStatusView(
        site="frankfurt",
        namespace="llm",
        name="chat-8b",
        fleet="prod",
        served_name="chat-8b",
        now=NOW,
        warmth=Warmth.HOT,
        health=Health.READY,
        hot=2,
        staged=2,
        opening=0,
        target=Target(hot=2, asleep=2, staged=2, because="window/chat-8b/day"),
        next=Edge(at=NOW + 14 * HOUR + timedelta(minutes=19), hot=0, asleep=0, staged=1),
        eta=None,
        ready_by=None,
        message="2 hot",
        paused_until=None,
        caps=(),
        replicas=(replica(Phase.SERVING), replica(Phase.SERVING, key="k2")),
        routes_version=3,
        acknowledged=3,
        base_url="https://eu1.infer.example.net/chat-8b/v1",
        priority=400,
        gpus=2,
    )
    return replace(base, **given)


def site(**given: Any) -> SiteStatusView:
    base = SiteStatusView(
        site="frankfurt",
        zone="Europe/Berlin",
        now=NOW,
        revision=7,
        usable={GPU: 40},
        held={GPU: 20},
        owners=("model/frankfurt/llm/chat-8b",),
        closures=(),
        reports=(),
        alarms=(),
        ledger=Ledger(site="frankfurt"),
    )
    return replace(base, **given)


def fleet(**given: Any) -> FleetStatusView:
    base = FleetStatusView(
        fleet="prod",
        now=NOW,
        revision=41,
        digest="abc",
        author="ana",
        at=NOW - timedelta(days=2),
        applied=41,
        sites={"frankfurt": ""},
        body={},
        revisions=((41, "ana", "abc"),),
        reasons=(),
    )
    return replace(base, **given)


def overview(*rows: Row, site_view: SiteStatusView | None = None, **given: Any) -> Overview:
    """A fleet with one site; `given` goes to the site's overview."""
    where = SiteOverview(
        name="frankfurt",
        zone="Europe/Berlin",
        namespace="llm",
        gpus={GPU: "h200"},
        rows=rows or (row(),),
        view=site_view or site(),
    )
    return Overview(now=NOW, fleet=fleet(), sites=(replace(where, **given),))


def row(view: DeploymentStatusView | None = None, *, pool: str = "chat-8b", problem: str = "") -> Row:
    found = deployment() if view is None and not problem else view
    return Row(model="chat-8b", pools=(pool,), view=found, problem=problem)
