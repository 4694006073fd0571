"""Three processes over one folder: each may be killed alone and comes back; a new supervisor goes on with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from temporalio.client import Client

from console import worlds
from sim.processes import alive
from sim.world import WorldSpec
from sunfleet.errors import Unreachable
from workers.supervisor import NAMES, Supervisor

pytestmark = pytest.mark.real_temporal

SOON = 60.0


def prepare(state: Path) -> Supervisor:
    """A supervisor over a world of one site with one node."""
    supervisor = Supervisor(state)
    small = worlds.default(nodes=1, gpus=1)
    world = worlds.placed(
        WorldSpec(sites={"tokyo": small.sites["tokyo"]}),
        supervisor.address,
        rate=1.0,
        fleet_origin=datetime.now(UTC),
    )
    (state / "world.json").write_text(world.model_dump_json())
    return supervisor


def recorded(state: Path) -> dict[str, tuple[int, str]]:
    """Process ids with their start times, as the supervisor wrote them down."""
    rows: dict[str, list[str | int]] = json.loads((state / "pids.json").read_text())
    return {name: (int(pid), str(start)) for name, (pid, start) in rows.items()}


@pytest.fixture(scope="module")
async def state(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("up")


@pytest.fixture(scope="module")
async def supervisor(state: Path) -> AsyncIterator[Supervisor]:
    found = prepare(state)
    await found.start()
    yield found
    await found.stop()
    assert not [n for n, (pid, start) in recorded(state).items() if alive(pid, start)]


async def test_all_three_run_and_are_written_down(supervisor: Supervisor, state: Path) -> None:
    found = recorded(state)
    assert set(found) == set(NAMES)
    assert all(alive(pid, start) for pid, start in found.values())


@pytest.mark.parametrize("name", NAMES)
async def test_each_is_killed_alone_and_comes_back(supervisor: Supervisor, state: Path, name: str) -> None:
    """The other two keep their processes, and the addresses stay."""
    before, config = recorded(state), (state / "config.json").read_text()
    supervisor.kill(name)
    await asyncio.wait_for(supervisor.recovered(name), SOON)
    after = recorded(state)
    assert after[name] != before[name]
    assert {n: p for n, p in after.items() if n != name} == {n: p for n, p in before.items() if n != name}
    assert not alive(*before[name])
    assert json.loads((state / "config.json").read_text()) == json.loads(config)


async def test_what_temporal_knew_survives_its_kill(supervisor: Supervisor) -> None:
    client = await Client.connect(supervisor.address)
    await client.start_workflow("Nobody", id="kept", task_queue="nobody")
    supervisor.kill("temporal")
    await asyncio.wait_for(supervisor.recovered("temporal"), SOON)
    again = await Client.connect(supervisor.address)
    assert (await again.get_workflow_handle("kept").describe()).id == "kept"
    await again.get_workflow_handle("kept").terminate()


async def test_a_new_supervisor_takes_the_folder_over(tmp_path: Path) -> None:
    """The first one is gone without a word: its processes are ended, and the same addresses serve again."""
    first = prepare(tmp_path)
    await first.start()
    first._stopping = True  # as if it had been killed: it watches no more, and its processes are left
    await first.wait()
    old = recorded(tmp_path)
    assert all(alive(pid, start) for pid, start in old.values())
    second = Supervisor(tmp_path)
    assert second.address == first.address
    try:
        await second.start()
        assert not [n for n, (pid, start) in old.items() if alive(pid, start)]
        assert all(alive(pid, start) for pid, start in recorded(tmp_path).values())
    finally:
        await second.stop()


async def test_a_world_that_cannot_start_is_told_with_its_log(tmp_path: Path) -> None:
    found = Supervisor(tmp_path)
    (tmp_path / "world.json").write_text("{}")
    try:
        with pytest.raises(Unreachable) as raised:
            await found.start()
    finally:
        await found.stop()
    assert "world did not come up" in raised.value.message
    assert "sites" in raised.value.message
