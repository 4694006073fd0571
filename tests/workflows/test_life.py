"""A deployment's life on a real Temporal server and a simulated site: from a claim to a proof and back.

After each test every history that it made is replayed. The whole life runs once more with the workflow cache at 0,
where each task replays from the beginning, and once on a server that wants histories so short that every entity rolls
over.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import os
import re
import signal
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest
from temporalio.client import WorkflowHistory
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import Replayer

from sim.network import MappedTransport
from sunfleet import names
from sunfleet.errors import NotFound, Refused, SunfleetError
from sunfleet.messages import (
    CancelTakeBack,
    Health,
    Pause,
    Pin,
    Prewarm,
    Resume,
    Rollback,
    TakeBack,
    Unload,
    Unpin,
)
from sunfleet.residency import Phase
from tests import realparts
from tests.workflows.worlds import NAMESPACE, Rig, eventually, fleet, rig
from workflows import registry

pytestmark = pytest.mark.real_temporal


STORED = Path(__file__).parent / "histories"
STORE = "SUNFLEET_STORE_HISTORIES"  # set by `make histories`, when a change of the workflows means to break old runs


@pytest.fixture
async def home(temporal: WorkflowEnvironment, tmp_path: Path) -> AsyncIterator[Rig]:
    async with rig(temporal, tmp_path) as made:
        yield made
        await _replay_all(temporal, made)


async def _replay_all(temporal: WorkflowEnvironment, made: Rig) -> None:
    """Every history that the test made replays with the code as it is."""
    replayer = Replayer(
        workflows=registry.ALL, workflow_runner=registry.runner(), data_converter=pydantic_data_converter
    )
    count = 0
    async for row in temporal.client.list_workflows():
        if made.site in row.id or made.fleet in row.id:
            history: WorkflowHistory = await temporal.client.get_workflow_handle(
                row.id, run_id=row.run_id
            ).fetch_history()
            await replayer.replay_workflow(history)
            count += 1
            if os.environ.get(STORE):
                _store(row.workflow_type, history)
    assert count >= 3


def _store(kind: str, history: WorkflowHistory) -> None:
    """Keep the longest history of each type, without the names of the processes that made it."""
    text = json.dumps(json.loads(history.to_json()), sort_keys=True)
    text = re.sub(r'"identity": "[^"]*"', '"identity": "worker"', text)
    file = STORED / f"{kind}.json.gz"
    if not file.exists() or len(text) > len(gzip.decompress(file.read_bytes())):
        file.write_bytes(gzip.compress(text.encode(), mtime=0))


@pytest.mark.parametrize("kind", [k.__name__ for k in registry.ALL])
async def test_a_stored_history_replays(kind: str) -> None:
    """What runs of a released version wrote must replay for ever, or be guarded by `workflow.patched`."""
    text = gzip.decompress((STORED / f"{kind}.json.gz").read_bytes()).decode()
    replayer = Replayer(
        workflows=registry.ALL, workflow_runner=registry.runner(), data_converter=pydantic_data_converter
    )
    await replayer.replay_workflow(WorkflowHistory.from_json(f"stored-{kind}", text))


async def _users_answer(made: Rig, model: str = "chat") -> int:
    """The status that a user of the gateway gets."""
    async with httpx.AsyncClient(timeout=10) as http:
        body = {"model": model, "prompt": "hello", "max_tokens": 2}
        return (await http.post(f"{made.world.gateway.url}/{made.site}/v1/completions", json=body)).status_code


async def _whole_life(home: Rig) -> None:
    """Staged, hot by a pre-warm, moved off a node that is taken back, paused, resumed, unloaded, gone."""
    await home.apply(fleet(home.fleet, home.site, otherwise={"staged": 1}))
    await home.until(lambda v: any(r.phase is Phase.STAGED for r in v.replicas), within=150)
    await home.console.prewarm(home.place(), Prewarm(request_id="p", author="t", duration=timedelta(days=5)))
    first = (await home.until(lambda v: v.hot == 1 and v.acknowledged >= v.routes_version, within=150)).replicas
    node = next(r.node for r in first if r.phase is Phase.SERVING)
    by = home.console.now() + timedelta(hours=5)
    await home.console.take_back(home.site, TakeBack(request_id="tb", author="owner", node=node, by=by))
    await home.until(lambda v: v.hot == 1 and all(r.node != node for r in v.replicas), within=150)
    await home.console.pause(home.place(), Pause(request_id="pa", author="t"))
    await home.console.resume(home.place(), Resume(request_id="re", author="t"))
    await home.console.unload(home.place(), Unload(request_id="u", author="t"))
    await home.until(lambda v: not v.replicas and v.acknowledged >= v.routes_version, within=150)
    assert await home.held() == 0
    assert await home.pods() == []
    assert await home.console.verify(home.site, NAMESPACE, "life") == ()


async def _nudged(temporal: WorkflowEnvironment, home: Rig) -> bool:
    query = "WorkflowType='NudgeWorkflow' AND ExecutionStatus='Completed'"
    return any([home.fleet in row.id async for row in temporal.client.list_workflows(query)])


@pytest.mark.timeout(600)
async def test_a_whole_life_with_every_task_replayed_from_the_beginning(
    temporal: WorkflowEnvironment, tmp_path: Path
) -> None:
    async with rig(temporal, tmp_path, cached=0) as home:
        await _whole_life(home)
        await temporal.client.get_schedule_handle(f"sunfleet/{home.fleet}/compressed").trigger()
        await eventually(lambda: _nudged(temporal, home))
        await _replay_all(temporal, home)


@pytest.mark.timeout(600)
async def test_a_whole_life_while_every_entity_rolls_over_all_the_time(tmp_path: Path) -> None:
    """Continue-as-new after some sixty events: phases resume, no message and no hold is lost (cases 172, 173, 193)."""
    short = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=60"]
    async with (
        await WorkflowEnvironment.start_local(
            dev_server_existing_path=realparts.temporal_path(),
            data_converter=pydantic_data_converter,
            dev_server_log_level="error",
            dev_server_extra_args=short,
        ) as server,
        rig(server, tmp_path) as home,
    ):
        await _whole_life(home)
        rolled = server.client.list_workflows("ExecutionStatus='ContinuedAsNew'")
        kinds = {row.workflow_type async for row in rolled}
        assert {"DeploymentWorkflow", "SiteWorkflow"} <= kinds


async def test_no_credential_is_in_any_history_status_log_or_event(home: Rig) -> None:
    """The engines' key, looked for everywhere that people and servers read (S8)."""
    await home.apply(fleet(home.fleet, home.site, hot=1))
    await home.hot()
    key = str(home.world._kept["engine_key"])
    seen = []
    async for row in home.console.client.list_workflows():
        history = await home.console.client.get_workflow_handle(row.id, run_id=row.run_id).fetch_history()
        seen.append(history.to_json())
    client = home.world.clients[home.site]
    for path in ("pods", "events", "services"):
        seen.append(json.dumps(await client.call("GET", f"/api/v1/namespaces/{NAMESPACE}/{path}")))
    mdeps = f"/apis/sunfleet.dev/v1alpha1/namespaces/{NAMESPACE}/modeldeployments"
    seen.append(json.dumps(await client.call("GET", mdeps)))
    seen += [f.read_text() for f in (home.world.state / "logs").rglob("*.jsonl")]
    assert len(seen) > 8
    encoded = base64.b64encode(key.encode()).decode()
    assert not any(key in text or encoded in text for text in seen)


async def test_a_window_makes_a_model_hot_and_a_user_gets_an_answer(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site, hot=2, tensor=2))
    view = await home.hot(2)
    assert view.gpus == 4
    assert {r.phase for r in view.replicas} == {Phase.SERVING}

    async def served() -> bool:
        return await _users_answer(home) == 200

    await eventually(served)
    assert await home.console.verify(home.site, NAMESPACE, "v") == ()


async def test_unload_withdraws_the_route_before_the_engine_ends(home: Rig) -> None:
    """The gateway's log has no failed request while users ask all the time."""
    await home.apply(fleet(home.fleet, home.site, hot=1))
    await home.hot()

    async def served() -> bool:
        return await _users_answer(home) == 200

    await eventually(served)
    asking = asyncio.create_task(_keep_asking(home))
    await home.console.unload(home.place(), Unload(request_id="u", author="t"))
    await home.gone()
    asking.cancel()
    statuses = [r["status"] for r in _gateway_log(home)]
    assert 200 in statuses
    assert set(statuses) <= {200, 503}, "503 is a route withdrawn; anything else is a request that was lost"
    assert all(r["error"] in ("", "no route") for r in _gateway_log(home))
    assert await home.held() == 0
    assert await home.pods() == []


async def _keep_asking(made: Rig) -> None:
    while True:
        await _users_answer(made)
        await asyncio.sleep(0.02)


def _gateway_log(made: Rig) -> list[dict[str, object]]:
    file = made.world.state / "logs" / "gateway.jsonl"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


async def test_a_prewarm_answers_at_once_and_ends_by_itself(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site))
    await home.until(lambda v: v.served_name == "chat")
    asked = Prewarm(request_id="p", author="gw", duration=timedelta(minutes=20))
    answer = await home.console.prewarm(home.place(), asked)
    assert (answer.hot, answer.wanted) == (0, 1)
    assert answer.eta is not None
    assert await home.console.prewarm(home.place(), asked) == answer, "a repeat is answered, not repeated"
    await home.hot()
    await home.gone()


async def test_two_hundred_equal_prewarms_are_one_load(home: Rig) -> None:
    """A burst by signal, as a gateway would: one engine starts (case 35, S5)."""
    await home.apply(fleet(home.fleet, home.site))
    await home.until(lambda v: v.served_name == "chat")
    handle = home.console.client.get_workflow_handle(home.place().id)
    asks = [Prewarm(request_id=f"b{i}", author="gw", duration=timedelta(hours=5)) for i in range(200)]
    await asyncio.gather(*(handle.signal("prewarm", a) for a in asks))
    await home.hot()
    starts = [
        json.loads(line)
        for f in (home.world.state / "logs" / "engines").glob("*.jsonl")
        for line in f.read_text().splitlines()
    ]
    assert sum(1 for s in starts if s["event"] == "start") == 1


async def test_a_pin_stays_until_it_is_taken_back(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site))
    await home.until(lambda v: v.served_name == "chat")
    pinned = await home.console.pin(home.place(), Pin(request_id="pin1", author="t"))
    await home.hot()
    with pytest.raises(NotFound):
        await home.console.unpin(home.place(), Unpin(request_id="x", author="t", pin="other"))
    await home.console.unpin(home.place(), Unpin(request_id="un", author="t", pin=pinned.pin))
    await home.gone()


async def test_while_paused_nothing_changes_and_repair_goes_on(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site, hot=1))
    await home.hot()
    await home.console.pause(home.place(), Pause(request_id="pause", author="t"))
    await home.apply(fleet(home.fleet, home.site, hot=2))
    pod = (await home.pods())[0]
    client = home.world.clients[home.site]
    path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
    await client.call("DELETE", path, {"gracePeriodSeconds": 0})

    async def repaired() -> bool:
        pods = [p for p in await home.pods() if p["metadata"]["uid"] != pod["metadata"]["uid"]]
        return len(pods) == 1 and any(
            c["type"] == "Ready" and c["status"] == "True" for c in pods[0]["status"]["conditions"]
        )

    await eventually(repaired)
    assert len((await home.hot(1)).replicas) == 1
    await home.console.resume(home.place(), Resume(request_id="resume", author="t"))
    await home.hot(2)


async def test_staged_weights_wait_where_the_engine_will_start(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site, otherwise={"staged": 1}))
    view = await home.until(lambda v: any(r.phase is Phase.STAGED for r in v.replicas))
    assert view.gpus == 0
    node = view.replicas[0].node
    await home.console.prewarm(home.place(), Prewarm(request_id="p", author="t", duration=timedelta(hours=3)))
    hot = await home.hot()
    assert [r.node for r in hot.replicas if r.phase is Phase.SERVING] == [node]
    assert sum(home.world.hub.downloads.values()) == len(home.world.hub.downloads), "each file was fetched once"


async def test_a_node_goes_back_in_time_and_the_replacement_serves_first(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site, hot=1))
    first = (await home.hot()).replicas[0]
    by = home.console.now() + timedelta(minutes=50)
    taken = await home.console.take_back(home.site, TakeBack(request_id="tb", author="owner", node=first.node, by=by))
    assert taken.holds == 1
    again = await home.console.take_back(
        home.site, TakeBack(request_id="tb2", author="owner", node=first.node, by=by + timedelta(hours=1))
    )
    assert again.by == by, "the earliest deadline wins"
    moved = await home.until(lambda v: v.hot == 1 and all(r.node != first.node for r in v.replicas))
    assert moved.hot == 1

    async def reported() -> object:
        reports = (await home.console.site_status(home.site)).reports
        return reports[0] if reports else None

    report = await eventually(reported)
    assert report.on_time
    assert report.forced == 0
    node = await home.world.clients[home.site].call("GET", f"/api/v1/nodes/{first.node}")
    assert node["spec"]["unschedulable"]


async def test_a_cancelled_take_back_opens_the_node_again(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site, hot=1))
    node = (await home.hot()).replicas[0].node
    by = home.console.now() + timedelta(hours=30)
    await home.console.take_back(home.site, TakeBack(request_id="tb", author="owner", node=node, by=by))
    await home.console.cancel_take_back(home.site, CancelTakeBack(request_id="c", author="owner", node=node))

    async def opened() -> bool:
        found = await home.world.clients[home.site].call("GET", f"/api/v1/nodes/{node}")
        return not found["spec"].get("unschedulable") and not found["spec"].get("taints")

    await eventually(opened)
    with pytest.raises(SunfleetError, match="not being taken back"):
        await home.console.cancel_take_back(home.site, CancelTakeBack(request_id="c2", author="o", node=node))


async def test_a_node_that_nobody_knows_is_refused_and_changes_nothing(home: Rig) -> None:
    await home.apply(fleet(home.fleet, home.site, otherwise={"staged": 1}))
    await home.until(lambda v: any(r.phase is Phase.STAGED for r in v.replicas))
    by = home.console.now() + timedelta(hours=1)
    with pytest.raises(SunfleetError, match="no node"):
        await home.console.take_back(home.site, TakeBack(request_id="tb", author="o", node="nobody", by=by))
    assert (await home.console.site_status(home.site)).closures == ()


async def test_an_apply_is_whole_or_not_at_all(home: Rig) -> None:
    """Refusals leave the fleet as it was: a stale revision, a bad body, a removal that was not allowed."""
    body = fleet(home.fleet, home.site, hot=1)
    assert (await home.apply(body)).revision == 1
    assert not (await home.apply(body)).changed
    with pytest.raises(Refused):
        await home.apply(fleet(home.fleet, home.site, hot=2), expect=7)
    broken = fleet(home.fleet, home.site, hot=1)
    broken["sites"][home.site]["zone"] = "Mars/Base"
    with pytest.raises(SunfleetError, match="Mars/Base"):
        await home.apply(broken)
    with pytest.raises(SunfleetError, match="hot nowhere"):
        await home.apply(fleet(home.fleet, home.site))
    status = await home.console.fleet_status(home.fleet)
    assert (status.revision, status.body) == (1, body)


async def test_a_removed_pool_takes_its_models_with_it_and_a_rollback_brings_them_back(home: Rig) -> None:
    both = fleet(home.fleet, home.site, hot=1, models=("chat", "other"))
    await home.apply(both)
    await home.hot(1, "other")
    await home.apply(fleet(home.fleet, home.site, hot=1), allow_removals=True)

    async def removed() -> bool:
        path = f"/apis/sunfleet.dev/v1alpha1/namespaces/{NAMESPACE}/modeldeployments"
        found = (await home.world.clients[home.site].call("GET", path))["items"]
        pods = [p for p in await home.pods() if names.deployment_slug("other") in p["metadata"]["name"]]
        return [o["metadata"]["name"] for o in found] == ["chat"] and not pods

    await eventually(removed)
    accepted = await home.console.rollback(home.fleet, Rollback(request_id="rb", author="t"))
    assert accepted.revision == 3
    await home.hot(1, "other")


@pytest.mark.parametrize("fault", ["wrong_name", "empty_text", "refuses_key", "zombie"])
async def test_an_engine_that_is_healthy_but_wrong_is_never_routed(
    temporal: WorkflowEnvironment, tmp_path: Path, fault: str
) -> None:
    """Health says 200; the proof says no. Nothing enters a route, and the reason is told."""
    async with rig(temporal, tmp_path, engine_env={"SIM_FAULT": fault}) as home:
        await home.apply(fleet(home.fleet, home.site, hot=1))
        view = await home.until(lambda v: v.health is Health.BLOCKED, within=150)
        assert view.hot == 0
        assert home.world.gateway.routes(home.site) == []
        assert view.message


async def test_an_engine_that_restarts_is_proven_again_before_users_get_it(
    temporal: WorkflowEnvironment, tmp_path: Path
) -> None:
    async with rig(temporal, tmp_path, in_process=False) as home:
        await home.apply(fleet(home.fleet, home.site, hot=1))
        await home.hot()
        record = next((home.world.state / "pods" / home.site).glob("*/process.json"))
        row = json.loads(record.read_text())
        os.killpg(row["pid"], signal.SIGKILL)
        await home.until(lambda v: v.hot == 0)
        await home.hot()
        reasons = [r.code for r in await home.console.reasons(home.place())]
        assert reasons.count("ReplicaServing") == 2


async def test_an_empty_list_of_nodes_removes_nothing(temporal: WorkflowEnvironment, tmp_path: Path) -> None:
    """A sick API server answers that there are no nodes: what serves goes on serving."""
    async with rig(temporal, tmp_path) as home:
        await home.apply(fleet(home.fleet, home.site, hot=1))
        await home.hot()
        sick = home.world.clusters[home.site].sickness
        sick.empty, sick.expire_watches = "nodes", True
        await asyncio.sleep(4)  # long enough for several lists
        sick.empty, sick.expire_watches = "", False
        view = await home.console.deployment_status(home.place())
        assert view.hot == 1
        assert sum((await home.console.site_status(home.site)).usable.values()) == 8


async def test_a_silent_site_is_named_and_does_not_hold_up_the_answer(
    temporal: WorkflowEnvironment, tmp_path: Path
) -> None:
    async with rig(temporal, tmp_path) as home:
        home.world.clusters[home.site].sickness.status = 500
        assert (await home.apply(fleet(home.fleet, home.site, hot=1))).revision == 1
        home.world.clusters[home.site].sickness.status = 0
        await home.hot()


async def test_a_missing_revision_and_a_refused_token_are_told_apart(
    temporal: WorkflowEnvironment, tmp_path: Path
) -> None:
    for status, word in ((404, "Missing"), (401, "AccessDenied")):
        folder = tmp_path / str(status)
        async with rig(temporal, folder) as home:
            home.world.hub.faults.status = status
            await home.apply(fleet(home.fleet, home.site, hot=1))
            view = await home.until(lambda v: v.health is Health.BLOCKED)
            assert view.message.startswith(word)


async def test_a_split_that_the_heads_do_not_allow_is_told_before_an_engine_starts(
    temporal: WorkflowEnvironment, tmp_path: Path
) -> None:
    """8 heads over 3 GPUs: known from config.json once it is staged (cases 49, 50)."""
    async with rig(temporal, tmp_path) as home:
        await home.apply(fleet(home.fleet, home.site, hot=1, tensor=3))
        view = await home.until(lambda v: v.health is Health.BLOCKED)
        assert "must be divisible by tensor parallel size (3)" in view.message
        assert list((home.world.state / "logs" / "engines").glob("*.jsonl")) == []


def test_the_network_never_leaves_this_machine(tmp_path: Path) -> None:
    """An address that nobody published is refused, not asked for outside."""
    from sim.network import NetworkTable

    async def ask() -> None:
        async with httpx.AsyncClient(transport=MappedTransport(NetworkTable(tmp_path))) as http:
            await http.get("https://example.net/")

    with pytest.raises(httpx.ConnectError):
        asyncio.run(ask())
