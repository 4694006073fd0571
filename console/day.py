"""The demo's day: what happens when, and what is promised besides the windows. Values; the demo carries it out."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from sim.load import LoadSpec
from sunfleet.clock import FleetClock

RATE = 320.0
ORIGIN = datetime(2026, 11, 2, 20, 0, tzinfo=UTC)  # Monday evening in Frankfurt, Tuesday morning in Tokyo
FIRST_OPENINGS = timedelta(hours=5)  # of fleet time at most, until what is open at the start is hot
JUDGED_UNTIL = ORIGIN + timedelta(hours=25, minutes=30)
PREWARM_AT, PREWARM_READY, PREWARM_FOR = timedelta(hours=21.3), timedelta(hours=23.5), timedelta(hours=1)
TAKE_BACK_AT, TAKE_BACK_BY = timedelta(hours=6), timedelta(hours=12)
KILL_WORKERS_AT, KILL_TEMPORAL_AT = timedelta(hours=14.2), timedelta(hours=16.2)
TAKEN_NODE = "tok-gpu-01"
USERS = {"tokyo": "Asia/Tokyo", "frankfurt": "Europe/Berlin", "oregon": "America/Los_Angeles"}


@dataclass(slots=True)
class Facts:
    """What the judge must be told beside the fleet file: only what was really promised to somebody."""

    promises: list[dict[str, str]] = field(default_factory=list)
    start: datetime = ORIGIN  # the day that is judged begins when what was open at the start is hot

    def promise(self, site: str, model: str, start: datetime, end: datetime, why: str) -> None:
        self.promises.append(
            {"site": site, "model": model, "from": start.isoformat(), "until": end.isoformat(), "why": why}
        )

    def write(self, path: Path, clock: FleetClock, until: datetime) -> None:
        """`plan.json`, as the judge reads it."""
        plan: dict[str, Any] = {
            "clock": {
                "realOrigin": clock.real_origin.isoformat(),
                "fleetOrigin": clock.fleet_origin.isoformat(),
                "rate": clock.rate,
            },
            "from": self.start.isoformat(),
            "until": until.isoformat(),
            "promises": self.promises,
            "excused": [],
            "tolerance": {"readySeconds": 0.5, "releaseSeconds": 30.0},
        }
        path.write_text(json.dumps(plan, indent=1))


def users(intensity: float = 1.0) -> list[LoadSpec]:
    """Everybody asks from the first to the last minute of their windows, and some stream for long."""
    found = []
    for region, zone in USERS.items():
        found.append(
            LoadSpec(region=region, zone=zone, model="chat-8b", per_second=3 * intensity, from_hour=8, until_hour=18)
        )
        found.append(
            LoadSpec(
                region=region,
                zone=zone,
                model="chat-70b",
                per_second=2 * intensity,
                from_hour=9,
                until_hour=17,
                weekdays=(0, 1, 2, 3, 4),
            )
        )
    evening = LoadSpec(
        region="frankfurt", zone="Europe/Berlin", model="chat-70b", per_second=2, from_hour=20.5, until_hour=21.5
    )
    return [*found, evening]
