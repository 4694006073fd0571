"""What was promised: the fleet file's windows as instants, by a method of the judge's own.

It walks the minutes of UTC and asks what the wall clock says, instead of computing openings from dates. A local start
that does not exist is the first minute after the gap; one that comes twice counts once, the first time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import yaml

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
MINUTE = timedelta(minutes=1)
_UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}


@dataclass(frozen=True, slots=True)
class Promise:
    """One model is hot at one site from `opens` until `closes` (fleet time)."""

    site: str
    model: str  # as served
    opens: datetime
    closes: datetime
    why: str
    slack: bool = False  # excused: shown, not counted


@dataclass(frozen=True, slots=True)
class Plan:
    """The written plan: the clock, the period and every promise in it."""

    real_origin: datetime
    fleet_origin: datetime
    rate: float
    start: datetime
    end: datetime
    promises: tuple[Promise, ...]
    ready_seconds: float = 1.0  # real seconds at a window's start that are forgiven
    release_seconds: float = 60.0  # real seconds after a close until an engine must be quiet
    peak: dict[str, int] = field(default_factory=dict)  # site → GPUs that always-on would hold

    def fleet(self, real: datetime) -> datetime:
        """Fleet time at a real instant."""
        return self.fleet_origin + (real - self.real_origin) * self.rate


def read(fleet_file: Path, plan_file: Path) -> Plan:
    """The plan of a fleet file and the facts written beside it."""
    fleet = yaml.safe_load(fleet_file.read_text())
    facts = json.loads(plan_file.read_text())
    start, end = _time(facts["from"]), _time(facts["until"])
    promises = list(_windows(fleet, start, end))
    promises += [_extra(row) for row in facts.get("promises", [])]
    excused = [_extra(row) for row in facts.get("excused", [])]
    promises = [_excuse(p, excused) for p in promises]
    tolerance = facts.get("tolerance", {})
    return Plan(
        real_origin=_time(facts["clock"]["realOrigin"]),
        fleet_origin=_time(facts["clock"]["fleetOrigin"]),
        rate=float(facts["clock"]["rate"]),
        start=start,
        end=end,
        promises=tuple(sorted(promises, key=lambda p: (p.opens, p.site, p.model))),
        ready_seconds=float(tolerance.get("readySeconds", 1.0)),
        release_seconds=float(tolerance.get("releaseSeconds", 60.0)),
        peak=_peaks(fleet),
    )


def _extra(row: dict[str, str]) -> Promise:
    return Promise(row["site"], row["model"], _time(row["from"]), _time(row["until"]), row.get("why", ""))


def _excuse(promise: Promise, excused: list[Promise]) -> Promise:
    hit = any(
        e.site == promise.site and e.model == promise.model and e.opens < promise.closes and e.closes > promise.opens
        for e in excused
    )
    return Promise(promise.site, promise.model, promise.opens, promise.closes, promise.why, slack=hit)


def _windows(fleet: dict[str, Any], start: datetime, end: datetime) -> Iterator[Promise]:
    """Every window with hot replicas that overlaps the period."""
    for pool_name, pool in fleet["pools"].items():
        served = fleet["models"][pool["model"]]["servedName"]
        for window in pool.get("windows", []):
            if not window.get("hot"):
                continue
            why = f"{pool_name}/{window['name']}"
            for site in pool["sites"]:
                zone = ZoneInfo(fleet["sites"][site]["zone"])
                if window.get("always"):
                    yield Promise(site, served, start, end, why)
                    continue
                for opens, closes in spans(window, zone, start, end):
                    yield Promise(site, served, opens, closes, why)


def spans(
    window: dict[str, Any], zone: ZoneInfo, start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """Openings and closings of a window, found minute by minute on the zone's wall clock."""
    days = set(_days(window.get("days", "daily")))
    hour, minute = (int(x) for x in str(window["start"]).split(":"))
    length = _seconds(str(window["for"]))
    at = start - timedelta(seconds=length) - timedelta(days=2)
    at = at.replace(second=0, microsecond=0)
    seen: set[str] = set()
    before = at.astimezone(zone).replace(tzinfo=None)
    while at < end:
        at += MINUTE
        wall = at.astimezone(zone).replace(tzinfo=None)
        target = wall.replace(hour=hour, minute=minute)
        crossed = before < target <= wall  # also when the clock jumped over it
        before = wall
        key = target.date().isoformat()
        if not crossed or key in seen or not ({WEEKDAYS[target.weekday()], "daily", key} & days):
            continue
        seen.add(key)
        closes = _closing(at, target + timedelta(seconds=length), zone, length)
        if closes > start:
            yield at, closes


def _closing(opens: datetime, wanted: datetime, zone: ZoneInfo, length: int) -> datetime:
    """The first minute after the opening at which the wall clock has reached the closing time."""
    at = opens + timedelta(seconds=max(0, length - 3 * 3600))
    while at.astimezone(zone).replace(tzinfo=None) < wanted:
        at += MINUTE
    return at


def _days(days: str | list[str]) -> list[str]:
    found = []
    for text in [days] if isinstance(days, str) else days:
        first, dash, last = str(text).partition("-")
        if dash and first in WEEKDAYS:
            index = WEEKDAYS.index(first)
            while True:
                found.append(WEEKDAYS[index % 7])
                if WEEKDAYS[index % 7] == last:
                    break
                index += 1
        else:
            found.append(str(text))
    return found


def _seconds(text: str) -> int:
    return int(sum(float(n) * _UNITS[u] for n, u in re.findall(r"(\d+(?:\.\d+)?)\s*([dhms])", text)))


def _peaks(fleet: dict[str, Any]) -> dict[str, int]:
    """GPUs per site when everything that is ever hot were always hot."""
    peaks: dict[str, int] = {}
    for pool in fleet["pools"].values():
        tensor = (fleet["models"][pool["model"]].get("parallel") or {}).get("tensor", 1)
        hot = max([w.get("hot", 0) or 0 for w in pool.get("windows", [])], default=0)
        for site in pool["sites"]:
            peaks[site] = peaks.get(site, 0) + hot * tensor
    return peaks


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
