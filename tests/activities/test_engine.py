"""A proof is what it says: the right name, a real answer, a counted token, with the site's own key."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import NAMESPACE, SECRET
from activities import engine as module
from activities.clients.engine import HttpEngineClient
from activities.clients.kubernetes import KubernetesCluster
from activities.engine import DrainReplica, EngineActivities, ProveReplica
from sim.cluster import SimCluster
from sim.engine.options import EngineOptions
from sim.engine.server import SimEngine
from sim.processes import free_port
from sunfleet.model import Engine, Task

KEY = "canary-engine-key"
ENGINE = Engine(image="sim/vllm", key_secret="engine-key")


class Lab:
    """A simulated API server with the Secret, and one simulated engine."""

    def __init__(self, acts: EngineActivities, cluster: KubernetesCluster, engine: SimEngine) -> None:
        self.acts, self.cluster, self.engine = acts, cluster, engine

    async def prove(self, name: str = "chat", task: Task = Task.GENERATE, engine: Engine = ENGINE) -> module.Proof:
        command = ProveReplica(
            namespace="llm", engine=engine, served_name=name, task=task, ip="127.0.0.1", port=self.engine.options.port
        )
        return await ActivityEnvironment().run(self.acts.prove_replica, command)


@pytest.fixture
async def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Lab]:
    monkeypatch.setattr(module, "METRIC_PATIENCE", module.POLL * 2)
    sim = SimCluster()
    await sim.start()
    cluster = await KubernetesCluster.from_kubeconfig(str(sim.write_kubeconfig(tmp_path / "kubeconfig")))
    await cluster.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}})
    await _secret(cluster, KEY)
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text("{}")
    options = EngineOptions(
        model=tmp_path / "model", served_names=("chat",), port=free_port(), keys=(KEY,), start_seconds=0
    )
    engine, stop = SimEngine(options), asyncio.Event()
    serving = asyncio.create_task(engine.serve(stop))
    client = HttpEngineClient()
    found = Lab(EngineActivities(cluster, client), cluster, engine)
    while True:
        reader = await _opened(options.port)
        if reader:
            break
    yield found
    stop.set()
    await asyncio.gather(serving, return_exceptions=True)
    await client.close()
    await cluster.close()
    await sim.stop()


async def _opened(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        await asyncio.sleep(0.02)
        return False
    writer.close()
    return True


async def _secret(cluster: KubernetesCluster, value: str) -> None:
    data = {"api-key": base64.b64encode(value.encode()).decode()}
    meta = {"name": "engine-key", "namespace": "llm"}
    await cluster.apply(SECRET, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}, "test")


async def test_a_proof_counts_the_tokens_it_got(lab: Lab) -> None:
    assert (await lab.prove()).tokens == 2


@pytest.mark.parametrize(
    ("fault", "code", "final"),
    [
        ("wrong_name", "Unfit", True),
        ("empty_text", "NotYet", False),
        ("refuses_key", "AccessDenied", True),
        ("zombie", "Unreachable", False),
    ],
)
async def test_each_way_to_be_wrong_is_told_apart(lab: Lab, fault: str, code: str, final: bool) -> None:
    lab.engine.fault = fault
    with pytest.raises(ApplicationError) as caught:
        await lab.prove()
    assert (caught.value.type, caught.value.non_retryable) == (code, final)
    assert KEY not in f"{caught.value.message} {caught.value.details}"


async def test_an_empty_key_is_refused_because_it_would_mean_no_key_at_all(lab: Lab) -> None:
    await _secret(lab.cluster, "\n")
    with pytest.raises(ApplicationError) as caught:
        await lab.prove()
    assert caught.value.type == "Missing"


async def test_a_missing_secret_is_named(lab: Lab) -> None:
    with pytest.raises(ApplicationError, match="nobody"):
        await lab.prove(engine=Engine(key_secret="nobody"))


async def test_a_task_without_a_proof_is_unfit(lab: Lab) -> None:
    with pytest.raises(ApplicationError, match="no proof"):
        await lab.prove(task=Task.SCORE)


async def test_draining_an_engine_that_is_gone_is_done(lab: Lab) -> None:
    command = DrainReplica(namespace="llm", engine=ENGINE, ip="127.0.0.1", port=free_port())
    assert (await ActivityEnvironment().run(lab.acts.drain_replica, command)).running is None


async def test_draining_waits_for_what_runs(lab: Lab) -> None:
    lab.engine.running = 1
    command = DrainReplica(namespace="llm", engine=ENGINE, ip="127.0.0.1", port=lab.engine.options.port)

    async def drain() -> int | None:
        return (await ActivityEnvironment().run(lab.acts.drain_replica, command)).running

    draining = asyncio.create_task(drain())
    await asyncio.sleep(0.6)
    assert not draining.done()
    lab.engine.running = 0
    assert await draining == 0
