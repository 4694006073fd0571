"""Effects on Temporal Schedules: make the server's match the fleet. They only nudge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from temporalio import activity

from activities.failures import failures_mapped
from sunfleet.clock import FleetClock
from sunfleet.model import FleetSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchSchedules:
    fleet: FleetSpec
    clock: FleetClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Matched:
    """Ids by what happened to them. A Schedule that an operator paused stays paused."""

    created: tuple[str, ...] = ()
    updated: tuple[str, ...] = ()
    deleted: tuple[str, ...] = ()
    kept: int = 0


class ScheduleServer(Protocol):
    async def match(self, command: MatchSchedules) -> Matched: ...


class ScheduleActivities:
    """Runs on the control queue, from one Fleet workflow: one writer."""

    def __init__(self, server: ScheduleServer) -> None:
        self._server = server

    @activity.defn
    @failures_mapped
    async def match_schedules(self, command: MatchSchedules) -> Matched:
        """Create, update and delete only our own Schedules of that fleet."""
        return await self._server.match(command)
