"""The demo's day: what happens when, and what is promised besides the windows. Values; the demo carries it out."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from sim.load import LoadSpec
from sunfleet.clock import FleetClock
from sunfleet.model import FleetSpec

RATE = 320.0
ORIGIN = datetime(2026, 11, 2, 20, 0, tzinfo=UTC)  # Monday evening in Frankfurt, Tuesday morning in Tokyo
FIRST_OPENINGS = timedelta(hours=5)  # of fleet time at most, until what is open at the start is hot
JUDGED_UNTIL = ORIGIN + timedelta(hours=25)
PREWARM_AT, PREWARM_READY, PREWARM_FOR = timedelta(hours=21.3), timedelta(hours=23.5), timedelta(hours=1)
TAKE_BACK_AT, TAKE_BACK_BY = timedelta(hours=6), timedelta(hours=12)
KILL_WORKERS_AT, KILL_TEMPORAL_AT = timedelta(hours=14.2), timedelta(hours=16.2)
TAKEN_NODE = "tok-gpu-01"
PREWARMED = "frankfurt"
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


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


def draw(body: dict[str, Any], seed: int) -> dict[str, Any]:
    """The fleet of one run: `body` with other hours and counts, drawn by `seed`. It always fits the demo's nodes."""
    chance = random.Random(seed)
    fleet: dict[str, Any] = json.loads(json.dumps(body))
    for pool in fleet["pools"].values():
        for window in pool["windows"]:
            hour, minute = map(int, window["start"].split(":"))
            moved = hour * 60 + minute + 15 * chance.randint(-4, 4)
            window["start"] = f"{moved // 60:02d}:{moved % 60:02d}"
            window["for"] = f"{int(window['for'].removesuffix('h')) * 60 + 30 * chance.randint(-2, 2)}m"
    small = fleet["pools"]["chat-8b"]["windows"][0]
    small["hot"] = chance.choice((1, 2, 2))
    fleet["pools"]["chat-70b"]["otherwise"] = chance.choice(({"staged": 1}, {"staged": 1}, {"staged": 0}))
    return fleet


def described(fleet: FleetSpec) -> list[str]:
    """The pools of a fleet, a line each."""
    found = []
    for pool in fleet.pools.values():
        for window in pool.windows:
            opens = _hour(time.fromisoformat(window.start))
            closes = opens + window.duration / timedelta(hours=1)
            gpus = fleet.models[pool.model].tensor
            found.append(
                f"{pool.model}: {window.hot} x {gpus} GPU {'daily' if 'daily' in window.days else 'mon-fri'} "
                f"{_clock(opens)}-{_clock(closes)} local, else {pool.otherwise.staged} staged"
            )
    return found


def users(fleet: FleetSpec, intensity: float = 1.0) -> list[LoadSpec]:
    """Everybody asks from the first to the last minute of their windows, and some stream for long."""
    found = [
        LoadSpec(
            region=site,
            zone=fleet.sites[site].zone,
            model=fleet.models[pool.model].served_name,
            per_second=(3 if fleet.models[pool.model].tensor == 1 else 2) * intensity,
            from_hour=_hour(time.fromisoformat(window.start)),
            until_hour=_hour(time.fromisoformat(window.start)) + window.duration / timedelta(hours=1),
            weekdays=tuple(range(7)) if "daily" in window.days else tuple(WEEKDAYS.index(d) for d in window.days),
        )
        for pool in fleet.pools.values()
        for window in pool.windows
        for site in pool.sites
    ]
    evening = _hour((ORIGIN + PREWARM_READY).astimezone(ZoneInfo(fleet.sites[PREWARMED].zone)).time())
    until = evening + PREWARM_FOR / timedelta(hours=1)
    return [
        *found,
        LoadSpec(
            region=PREWARMED,
            zone=fleet.sites[PREWARMED].zone,
            model="chat-70b",
            per_second=2,
            from_hour=evening,
            until_hour=until,
        ),
    ]


def _hour(at: time) -> float:
    return at.hour + at.minute / 60


def _clock(hour: float) -> str:
    return f"{int(hour):02d}:{round(hour % 1 * 60):02d}"
