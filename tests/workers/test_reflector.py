"""A local copy of a kind: whole after every accident, and never emptied by one empty answer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from datetime import timedelta
from pathlib import Path

import pytest

from activities import NODE, SECRET
from sim.cluster import server
from sim.cluster.server import Sickness
from tests.workers import clusters
from tests.workers.clusters import NS, Lab, eventually
from workers import reflector
from workers.reflector import Reflector


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(reflector, "DOUBT", timedelta(milliseconds=100))
    monkeypatch.setattr(reflector, "BACKOFF", timedelta(milliseconds=20))
    async with clusters.lab(tmp_path) as found:
        yield found


@asynccontextmanager
async def following(lab: Lab) -> AsyncIterator[Reflector]:
    found = Reflector(lab.cluster, SECRET, NS)
    task = asyncio.create_task(found.run(lambda: None))
    try:
        await eventually(lambda: found.synced)
        yield found
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


def names(found: Reflector) -> set[str]:
    return {key.removeprefix(f"{NS}/") for key in found.objects}


async def _delete(lab: Lab, name: str) -> None:
    found = await lab.cluster.get(SECRET, name, NS)
    assert found is not None
    assert await lab.cluster.delete(SECRET, name, NS, uid=found["metadata"]["uid"])


async def test_it_follows_what_comes_changes_and_goes(lab: Lab) -> None:
    await lab.secret("a")
    async with following(lab) as found:
        assert names(found) == {"a"}
        await lab.secret("b")
        await eventually(lambda: names(found) == {"a", "b"})
        await lab.cluster.patch(SECRET, "b", {"metadata": {"labels": {"x": "y"}}}, NS)
        await eventually(lambda: found.objects[f"{NS}/b"]["metadata"].get("labels") == {"x": "y"})
        await _delete(lab, "a")
        await eventually(lambda: names(found) == {"b"})


async def test_after_an_expired_watch_what_vanished_is_found_by_comparing(lab: Lab) -> None:
    await lab.secret("a")
    await lab.secret("b")
    async with following(lab) as found:
        lab.sim.sickness.black_hole = True  # a new watch says nothing, so what happens meanwhile is missed
        lab.sim.drop_watches()
        await _delete(lab, "a")
        await lab.secret("c")
        lab.sim.sickness = Sickness(expire_watches=True)
        await eventually(lambda: names(found) == {"b", "c"})
        lab.sim.sickness = Sickness()
        await _delete(lab, "c")
        await eventually(lambda: names(found) == {"b"})


async def test_a_watch_that_always_expires_is_not_asked_for_in_a_hurry(lab: Lab) -> None:
    async with following(lab) as found:
        lab.sim.sickness.expire_watches = True
        lab.sim.drop_watches()
        await lab.secret("a")
        await eventually(lambda: names(found) == {"a"})
        pauses = []
        for _ in range(4):
            before = found.pause
            await eventually(lambda before=before: found.pause > before)  # type: ignore[misc]
            pauses.append(found.pause)
        assert pauses == sorted(set(pauses))


async def test_a_server_that_is_down_for_a_while_costs_nothing(lab: Lab) -> None:
    await lab.secret("a")
    async with following(lab) as found:
        lab.sim.sickness.status = 503
        lab.sim.drop_watches()
        await eventually(lambda: lab.sim.refused > 2)
        assert names(found) == {"a"}
        lab.sim.sickness = Sickness()
        await lab.secret("b")
        await eventually(lambda: names(found) == {"a", "b"})


async def test_one_empty_answer_empties_nothing(lab: Lab) -> None:
    """An API server that restores itself says 200 and no items (case 31)."""
    for name in ("a", "b", "c"):
        await lab.secret(name)
    seen: list[set[str]] = []
    async with following(lab) as found:
        watching = asyncio.create_task(_notice(found, seen))
        lab.sim.sickness = Sickness(empty="secrets", expire_watches=True)
        before = lab.sim.emptied
        lab.sim.drop_watches()
        await eventually(lambda: lab.sim.emptied >= before + 2)
        lab.sim.sickness = Sickness()
        await lab.secret("d")
        await eventually(lambda: names(found) == {"a", "b", "c", "d"})
        watching.cancel()
    assert set() not in seen


async def _notice(found: Reflector, seen: list[set[str]]) -> None:
    while True:
        seen.append(names(found))
        await asyncio.sleep(0)


async def test_an_emptiness_that_lasts_is_believed(lab: Lab) -> None:
    await lab.secret("a")
    await lab.secret("b")
    async with following(lab) as found:
        lab.sim.sickness = Sickness(empty="secrets", expire_watches=True)
        lab.sim.drop_watches()
        await eventually(lambda: names(found) == set())


async def test_a_quiet_kind_on_a_busy_server_is_no_silence(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bookmarks come although something changes all the time, as long as it is of other kinds."""
    monkeypatch.setattr(server, "BOOKMARK_SECONDS", 0.2)
    marks = 0
    busy = asyncio.create_task(_keep_busy(lab))
    version = (await lab.cluster.list(SECRET, NS)).resource_version
    watching = lab.cluster.watch(SECRET, NS, version)
    async with aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            assert event.type == "BOOKMARK"
            marks += 1
            if marks == 3:
                break
    busy.cancel()
    with suppress(asyncio.CancelledError):
        await busy


async def _keep_busy(lab: Lab) -> None:
    """Something of another kind changes more often than a bookmark is due."""
    await lab.node("n1")
    for count in range(10_000):
        await lab.cluster.patch(NODE, "n1", {"metadata": {"labels": {"count": str(count)}}})
