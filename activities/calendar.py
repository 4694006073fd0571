"""Windows to instants. Here, not in workflow code, so that a new tzdata cannot break a replay."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from temporalio import activity

from activities.failures import failures_mapped
from sunfleet import calendars
from sunfleet.model import PoolSpec, SiteSpec
from sunfleet.warmth import Claim


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpandWindows:
    pool: PoolSpec
    sites: dict[str, SiteSpec]
    start: datetime
    end: datetime
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Expanded:
    """Absolute UTC claims by site, and the version of the zone data behind them."""

    claims: dict[str, tuple[Claim, ...]] = field(default_factory=dict)
    tzdata: str = ""


class CalendarActivities:
    @activity.defn(name="calendar.expand")
    @failures_mapped
    async def expand(self, command: ExpandWindows) -> Expanded:
        """The claims that cover [start, end) at each site."""
        return Expanded(
            claims={
                name: calendars.expand(command.pool, site, command.start, command.end, command.priority)
                for name, site in command.sites.items()
            },
            tzdata=calendars.tzdata_version(),
        )
