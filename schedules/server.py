"""One loop that makes the Temporal server's Schedules match a fleet's.

Only ids with the fleet's own prefix are touched. A Schedule whose definition did not change is not written
(its digest is in the action's memo), and an update keeps what an operator did to it: paused stays paused,
with the note. There is no conflict token in the SDK, so this runs from one place: the Fleet workflow.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

from temporalio.client import (
    Client,
    Schedule,
    ScheduleActionStartWorkflow,
    ScheduleAlreadyRunningError,
    ScheduleCalendarSpec,
    ScheduleIntervalSpec,
    ScheduleOverlapPolicy,
    SchedulePolicy,
    ScheduleRange,
    ScheduleSpec,
    ScheduleState,
    ScheduleUpdate,
    ScheduleUpdateInput,
)
from temporalio.service import RPCError, RPCStatusCode

from activities.schedules import Matched, MatchSchedules
from schedules.catalog import CATCH_UP, Wanted, prefix, wanted
from sunfleet import names
from sunfleet.errors import Unreachable
from sunfleet.messages import NUDGE

MEMO = "sunfleet.spec"
LIFE = timedelta(minutes=2)


class TemporalSchedules:
    """The Schedules of one namespace."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def match(self, command: MatchSchedules) -> Matched:
        """Create, update and delete. Errors: Unreachable."""
        want = {w.id: w for w in wanted(command.fleet, command.clock)}
        created: list[str] = []
        updated: list[str] = []
        kept = 0
        try:
            for schedule in want.values():
                done = await self._ensure(schedule)
                created += [schedule.id] if done == "created" else []
                updated += [schedule.id] if done == "updated" else []
                kept += done == "kept"
            deleted = await self._delete_others(prefix(command.fleet.name), set(want))
        except RPCError as error:
            raise Unreachable(f"the Temporal server did not take a Schedule: {error.status.name}") from error
        return Matched(created=tuple(created), updated=tuple(updated), deleted=deleted, kept=kept)

    async def _ensure(self, want: Wanted) -> str:
        try:
            await self._client.create_schedule(want.id, _schedule(want))
        except ScheduleAlreadyRunningError:
            return await self._update(want)
        return "created"

    async def _update(self, want: Wanted) -> str:
        wrote = False

        def change(given: ScheduleUpdateInput) -> ScheduleUpdate | None:
            nonlocal wrote
            if _digest(given.description.schedule) == want.digest:
                return None
            wrote = True
            return ScheduleUpdate(replace(_schedule(want), state=given.description.schedule.state))

        await self._client.get_schedule_handle(want.id).update(change)
        return "updated" if wrote else "kept"

    async def _delete_others(self, own: str, want: set[str]) -> tuple[str, ...]:
        gone = []
        async for row in await self._client.list_schedules():
            if row.id.startswith(own) and row.id not in want:
                gone.append(row.id)
        for id in sorted(gone):
            try:
                await self._client.get_schedule_handle(id).delete()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
        return tuple(sorted(gone))


def _digest(schedule: Schedule) -> str:
    """The digest that the action's memo carries; described memos are raw payloads."""
    action = schedule.action
    if not isinstance(action, ScheduleActionStartWorkflow) or not action.memo:
        return ""
    raw = action.memo.get(MEMO)
    data = getattr(raw, "data", None)
    return str(json.loads(data)) if data else ""


def _schedule(want: Wanted) -> Schedule:
    return Schedule(
        action=ScheduleActionStartWorkflow(
            NUDGE,
            want.nudge,
            id=names.nudge_id(want.id),
            task_queue=names.CONTROL_QUEUE,
            execution_timeout=LIFE,
            memo={MEMO: want.digest},
        ),
        spec=_spec(want),
        policy=SchedulePolicy(overlap=ScheduleOverlapPolicy.SKIP, catchup_window=CATCH_UP),
        state=ScheduleState(note=want.note),
    )


def _spec(want: Wanted) -> ScheduleSpec:
    if want.local is None:
        return ScheduleSpec(intervals=[ScheduleIntervalSpec(every=want.every or CATCH_UP)])
    days = [ScheduleRange((d + 1) % 7) for d in want.local.weekdays]  # Temporal counts from Sunday
    return ScheduleSpec(
        calendars=[
            ScheduleCalendarSpec(
                hour=[ScheduleRange(want.local.hour)],
                minute=[ScheduleRange(want.local.minute)],
                day_of_week=days,
                comment=want.note,
            )
        ],
        time_zone_name=want.local.zone,
    )
