"""Schedules on a real Temporal server: made to match a fleet, never against an operator, never anybody else's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from temporalio.client import Client, Schedule, ScheduleActionStartWorkflow, ScheduleDescription, ScheduleSpec
from temporalio.testing import WorkflowEnvironment

from activities.schedules import MatchSchedules
from schedules.catalog import prefix, wanted
from schedules.server import TemporalSchedules
from sunfleet import spec
from sunfleet.clock import FleetClock
from sunfleet.model import FleetSpec

pytestmark = pytest.mark.real_temporal

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "follow-the-day.yaml"
REAL_TIME = FleetClock(rate=1)
NOON = datetime(2026, 11, 2, 12, 0, tzinfo=UTC)


@pytest.fixture
def fleet() -> FleetSpec:
    """The example under a name of this test's own."""
    return replace(spec.parse(EXAMPLE.read_text(), str(EXAMPLE)), name=f"f{uuid.uuid4().hex[:8]}")


@pytest.fixture
def client(temporal: WorkflowEnvironment) -> Client:
    return temporal.client


async def _described(client: Client, id: str) -> ScheduleDescription:
    return await client.get_schedule_handle(id).describe()


async def _listed(client: Client, fleet: FleetSpec) -> set[str]:
    return {row.id async for row in await client.list_schedules() if row.id.startswith(prefix(fleet.name))}


async def _eventually(check: Callable[[], Awaitable[bool]], within: float = 20.0) -> None:
    """Lists lag behind writes: they come from the visibility store."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not await check():
        assert loop.time() < deadline, "it did not come about"
        await asyncio.sleep(0.1)


async def test_every_window_edge_has_a_schedule_that_fires_at_its_local_time(client: Client, fleet: FleetSpec) -> None:
    done = await TemporalSchedules(client).match(MatchSchedules(fleet=fleet, clock=REAL_TIME))
    assert set(done.created) == {w.id for w in wanted(fleet, REAL_TIME)}
    edges = [w for w in wanted(fleet, REAL_TIME) if w.local is not None]
    assert {w.local.zone for w in edges if w.local} == {s.zone for s in fleet.sites.values()}
    for edge in edges:
        assert edge.local is not None
        found = await _described(client, edge.id)
        assert found.schedule.spec.time_zone_name == edge.local.zone
        times = [t.astimezone(ZoneInfo(edge.local.zone)) for t in found.info.next_action_times]
        assert len(times) >= 5
        assert {(t.hour, t.minute) for t in times} == {(edge.local.hour, edge.local.minute)}
        assert {t.weekday() for t in times} <= set(edge.local.weekdays)


async def test_the_same_fleet_again_writes_nothing(client: Client, fleet: FleetSpec) -> None:
    schedules = TemporalSchedules(client)
    first = await schedules.match(MatchSchedules(fleet=fleet, clock=REAL_TIME))
    again = await schedules.match(MatchSchedules(fleet=fleet, clock=REAL_TIME))
    assert (again.created, again.updated, again.deleted) == ((), (), ())
    assert again.kept == len(first.created)
    for id in first.created:
        assert (await _described(client, id)).info.last_updated_at is None


async def test_an_operators_pause_survives_an_update(client: Client, fleet: FleetSpec) -> None:
    schedules = TemporalSchedules(client)
    await schedules.match(MatchSchedules(fleet=fleet, clock=REAL_TIME))
    hourly = f"{prefix(fleet.name)}hourly"
    await client.get_schedule_handle(hourly).pause(note="maintenance, ask ana")
    fewer = replace(fleet, pools={k: p for k, p in fleet.pools.items() if k != "chat-70b"})
    done = await schedules.match(MatchSchedules(fleet=fewer, clock=REAL_TIME))
    assert done.updated == (hourly,)
    found = await _described(client, hourly)
    assert (found.schedule.state.paused, found.schedule.state.note) == (True, "maintenance, ask ana")
    action = found.schedule.action
    assert isinstance(action, ScheduleActionStartWorkflow)
    assert b"chat-70b" not in action.args[0].data


async def test_a_window_that_moved_leaves_no_old_edge_behind(client: Client, fleet: FleetSpec) -> None:
    schedules = TemporalSchedules(client)
    first = await schedules.match(MatchSchedules(fleet=fleet, clock=REAL_TIME))

    async def all_listed() -> bool:
        return await _listed(client, fleet) == set(first.created)

    await _eventually(all_listed)
    pool = fleet.pools["chat-70b"]
    moved = replace(pool, windows=(replace(pool.windows[0], start="10:15"),))
    later = replace(fleet, pools=fleet.pools | {"chat-70b": moved})
    done = await schedules.match(MatchSchedules(fleet=later, clock=REAL_TIME))
    assert len(done.created) == len(done.deleted) == 2 * len(pool.sites)

    async def only_the_new() -> bool:
        return await _listed(client, fleet) == {w.id for w in wanted(later, REAL_TIME)}

    await _eventually(only_the_new)


async def test_a_fleet_that_is_gone_takes_its_own_schedules_along_and_no_others(
    client: Client, fleet: FleetSpec
) -> None:
    schedules = TemporalSchedules(client)
    longer = replace(fleet, name=f"{fleet.name}2")  # its name begins with the other's
    theirs = f"{prefix(fleet.name).rstrip('/')}-backup"
    first = await schedules.match(MatchSchedules(fleet=fleet, clock=REAL_TIME))
    kept = await schedules.match(MatchSchedules(fleet=longer, clock=REAL_TIME))
    action = ScheduleActionStartWorkflow("Theirs", id="theirs", task_queue="theirs")
    handle = await client.create_schedule(theirs, Schedule(action=action, spec=ScheduleSpec()))

    async def all_listed() -> bool:
        found = {row.id async for row in await client.list_schedules()}
        return found >= {*first.created, *kept.created, theirs}

    await _eventually(all_listed)
    done = await schedules.match(MatchSchedules(fleet=replace(fleet, pools={}, sites={}), clock=REAL_TIME))
    assert set(done.deleted) == set(first.created) - {f"{prefix(fleet.name)}hourly"}
    assert (await handle.describe()).id == theirs
    for id in kept.created:
        await _described(client, id)
    await handle.delete()


async def test_a_compressed_day_has_one_interval(client: Client, fleet: FleetSpec) -> None:
    clock = FleetClock(rate=300, real_origin=NOON, fleet_origin=NOON)
    done = await TemporalSchedules(client).match(MatchSchedules(fleet=fleet, clock=clock))
    assert len(done.created) == 1
    found = await _described(client, done.created[0])
    assert [i.every for i in found.schedule.spec.intervals] == [timedelta(seconds=12)]
    await client.get_schedule_handle(done.created[0]).delete()
