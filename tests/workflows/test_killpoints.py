"""The workers die between every two steps, and after every effect but before anybody knew: nothing is lost or left.

The points are enumerated from the histories of one clean life. Then one model per point lives through its own, all at
once: each kill hits all the others in the middle of something, too.
"""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from temporalio.testing import WorkflowEnvironment

from sim.processes import alive, send, started_at
from sunfleet.messages import Prewarm, Unload
from tests.realparts import ROOT
from tests.workflows.worlds import NAMESPACE, Rig, eventually, fleet, rig, working

pytestmark = pytest.mark.real_temporal

CLEAN = "m000"
WAIT = 300.0


async def _activities(home: Rig, model: str) -> list[str]:
    """The types of the activities in a model's recorded histories, each once, in order."""
    found: dict[str, None] = {}
    client = home.console.client
    async for row in client.list_workflows():
        if f"/{home.site}/" in row.id and f"/{model}" in row.id:
            history = await client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history()
            for event in history.events:
                if event.HasField("activity_task_scheduled_event_attributes"):
                    found[event.activity_task_scheduled_event_attributes.activity_type.name] = None
    return list(found)


class Workers:
    """A worker process that is started again whenever it dies."""

    def __init__(self, argv: list[str], log: Path) -> None:
        self._argv, self._log = argv, log
        self.starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    async def keep_alive(self) -> None:
        while True:
            if self.process is None or self.process.poll() is not None:
                with self._log.open("ab") as out:
                    self.process = subprocess.Popen(
                        self._argv, stdout=out, stderr=out, cwd=ROOT, start_new_session=True
                    )
                self.starts += 1
            await asyncio.sleep(0.1)


@contextmanager
def _supervised(argv: list[str], log: Path) -> Iterator[Workers]:
    workers = Workers(argv, log)
    task = asyncio.get_running_loop().create_task(workers.keep_alive())
    try:
        yield workers
    finally:
        task.cancel()
        if workers.process is not None and alive(workers.process.pid, started_at(workers.process.pid)):
            send(workers.process.pid, signal.SIGKILL)
            workers.process.wait(10)


@pytest.mark.timeout(900)
async def test_workers_may_die_at_any_point(
    temporal: WorkflowEnvironment, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with rig(temporal, tmp_path, nodes=2, gpus=40, work=False, rate=1.0) as home:
        names = [f"m{i:03d}" for i in range(41)]
        async with working(temporal.client, home):
            await home.apply(fleet(home.fleet, home.site, models=tuple(names)))
            await home.until(lambda v: v.served_name == CLEAN, CLEAN)
            await _live(home, [CLEAN])
        types = await _activities(home, CLEAN)
        points = [
            {"id": f"p{i}", "workflow": f"/{names[i + 1]}", "type": kind, "mode": mode}
            for i, (kind, mode) in enumerate((k, m) for k in types for m in ("before", "after"))
        ]
        assert len(points) >= 20
        assert len(points) < len(names)
        fired = tmp_path / "fired"
        fired.mkdir()
        (tmp_path / "points.json").write_text(json.dumps(points))
        argv = [
            sys.executable,
            "-m",
            "tests.workflows.killable",
            str(tmp_path / "config.json"),
            str(tmp_path / "points.json"),
            str(fired),
            temporal.client.service_client.config.target_host,
        ]
        models = [p["workflow"].removeprefix("/") for p in points]
        with _supervised(argv, tmp_path / "workers.log") as workers:
            await _live(home, models)
            missed = sorted(p["type"] + "/" + p["mode"] for p in points if not (fired / p["id"]).exists())
            # What only happens on the way to a first report has no second life to be killed in.
            assert len(missed) <= 2, missed
            assert workers.starts > len(points) / 2
            await _nothing_is_left(home)
        with capsys.disabled():
            print(f"\nkill points: {len(points) - len(missed)} of {len(points)} fired, {workers.starts} worker starts")


async def _live(home: Rig, models: list[str]) -> None:
    """Each model becomes hot, and then goes."""
    from datetime import timedelta

    for model in models:
        asked = Prewarm(request_id=f"p-{model}", author="t", duration=timedelta(days=6))
        await _insist(lambda m=model, a=asked: home.console.prewarm(home.place(m), a))
    for model in models:
        await home.until(lambda v: v.hot == 1 and v.acknowledged >= v.routes_version, model, WAIT)
    for model in models:
        await _insist(lambda m=model: home.console.unload(home.place(m), Unload(request_id=f"u-{m}", author="t")))
    for model in models:
        await home.until(lambda v: not v.replicas and v.acknowledged >= v.routes_version, model, WAIT)


async def _insist(ask: Any) -> None:
    """A request is repeated until it is answered: workers are away now and then."""

    async def once() -> bool:
        try:
            await ask()
        except Exception:  # noqa: BLE001  # whatever it is: the same request again
            return False
        return True

    await eventually(once, WAIT)


async def _nothing_is_left(home: Rig) -> None:
    """No pod, no workload, no hold, no open replica."""

    async def clean() -> bool:
        client = home.world.clients[home.site]
        workloads = (await client.call("GET", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"))["items"]
        open_replicas = [
            w.id
            async for w in home.console.client.list_workflows(
                "WorkflowType='ReplicaWorkflow' AND ExecutionStatus='Running'"
            )
            if f"/{home.site}/" in w.id
        ]
        return not await home.pods() and not workloads and not open_replicas and await home.held() == 0

    await eventually(clean, 60)
    assert await home.console.verify(home.site, NAMESPACE, "kill") == ()
