"""Effects on a cluster are safe to run twice, fenced by generation, and finished when they say so."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from temporalio.exceptions import ApplicationError
from temporalio.testing import ActivityEnvironment

from activities import CRD, DEPLOYMENT, MODEL_DEPLOYMENT, NAMESPACE, NODE, POD, Object
from activities.clients.kubernetes import KubernetesCluster
from activities.cluster import (
    ApplyDeployments,
    ClusterActivities,
    CreateWorkload,
    ReadDeployment,
    RetireWorkload,
)
from sim.cluster import SimCluster
from sunfleet import names
from sunfleet.crd import crd
from sunfleet.ledger import Hold
from sunfleet.messages import SurveyInput
from sunfleet.model import Engine, ModelSpec, SiteSpec, Source
from sunfleet.warmth import Warmth

SITE = SiteSpec(name="tokyo", zone="Asia/Tokyo", endpoint="http://x/{deployment}/v1")
MODEL = ModelSpec(
    name="chat",
    source=Source(scheme="hf", repo="a/b", revision="1" * 40),
    served_name="chat",
    engine=Engine(image="sim/vllm"),
    fleet="f",
)
HOLD = Hold(
    id="h7",
    generation=7,
    owner="model/tokyo/llm/chat",
    key="k",
    rung=Warmth.HOT,
    node="n1",
    node_uid="u",
    resource="nvidia.com/gpu",
    count=1,
)


@dataclass(slots=True)
class Lab:
    acts: ClusterActivities
    cluster: KubernetesCluster

    async def run(self, name: str, command: Any) -> Any:
        return await ActivityEnvironment().run(getattr(self.acts, name), command)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    sim = SimCluster()
    await sim.start()
    cluster = await KubernetesCluster.from_kubeconfig(str(sim.write_kubeconfig(tmp_path / "kubeconfig")))
    await cluster.create(NAMESPACE, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "llm"}})
    await cluster.apply(CRD, crd(), "test")
    await cluster.create(NODE, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}, "spec": {}})
    sizes = {"cpu": "9", "pods": "9", "nvidia.com/gpu": "4"}
    status = {"allocatable": sizes, "conditions": [{"type": "Ready", "status": "True"}]}
    await cluster.patch(NODE, "n1", {"status": status}, subresource="status")
    yield Lab(ClusterActivities(cluster), cluster)
    await cluster.close()
    await sim.stop()


def create(hold: Hold = HOLD) -> CreateWorkload:
    return CreateWorkload(site=SITE, model=MODEL, hold=hold, owner="replica/tokyo/llm/chat/h7", directory="models/x")


async def test_a_workload_is_made_once(lab: Lab) -> None:
    first = await lab.run("create_workload", create())
    assert await lab.run("create_workload", create()) == first


async def test_a_workload_of_another_generation_is_left_alone(lab: Lab) -> None:
    await lab.run("create_workload", create())
    with pytest.raises(ApplicationError) as caught:
        await lab.run("create_workload", create(replace(HOLD, generation=6)))
    assert (caught.value.type, caught.value.non_retryable) == ("Fenced", True)


async def test_retiring_ends_only_when_every_pod_is_gone(lab: Lab) -> None:
    """Accepted is not gone: the kubelet's final delete is waited for (case 71)."""
    await lab.run("create_workload", create())
    pod = await _bound(lab)
    name = names.replica_name(MODEL.name, HOLD.id)
    command = RetireWorkload(namespace="llm", name=name, hold=HOLD.id)
    retiring = asyncio.create_task(lab.run("retire_workload", command))
    await asyncio.sleep(1.2)
    assert not retiring.done()
    meta = pod["metadata"]
    await lab.cluster.delete(POD, meta["name"], "llm", uid=meta["uid"], grace_seconds=0)
    assert await retiring == 1
    assert await lab.run("retire_workload", command) == 0, "gone already is success"


async def test_retiring_leaves_a_workload_of_another_hold_alone(lab: Lab) -> None:
    await lab.run("create_workload", create())
    name = names.replica_name(MODEL.name, HOLD.id)
    task = asyncio.create_task(lab.run("retire_workload", RetireWorkload(namespace="llm", name=name, hold="h8")))
    await asyncio.sleep(0.8)
    task.cancel()
    assert await lab.cluster.get(DEPLOYMENT, name, "llm") is not None


async def _bound(lab: Lab) -> Object:
    for _ in range(100):
        for pod in (await lab.cluster.list(POD, "llm")).items:
            if pod["spec"].get("nodeName"):
                return pod
        await asyncio.sleep(0.05)
    raise AssertionError("no pod was bound")


async def test_a_fleet_removes_only_its_own_and_leaves_others_alone(lab: Lab) -> None:
    other = replace(MODEL, name="theirs", fleet="g")
    await lab.run("apply_deployments", ApplyDeployments(fleet="g", revision=1, site=SITE, models=(other,)))
    both = (MODEL, replace(MODEL, name="second"), replace(MODEL, name="theirs"))
    done = await lab.run("apply_deployments", ApplyDeployments(fleet="f", revision=1, site=SITE, models=both))
    assert (done.applied, done.foreign) == (("chat", "second"), ("theirs",))
    done = await lab.run("apply_deployments", ApplyDeployments(fleet="f", revision=2, site=SITE, models=(MODEL,)))
    assert done.removed == ("second",)
    left = [o["metadata"]["name"] for o in (await lab.cluster.list(MODEL_DEPLOYMENT, "llm")).items]
    assert left == ["chat", "theirs"]


async def test_an_object_that_makes_no_sense_is_a_problem_in_words(lab: Lab) -> None:
    await lab.run("apply_deployments", ApplyDeployments(fleet="f", revision=1, site=SITE, models=(MODEL,)))
    await lab.cluster.patch(MODEL_DEPLOYMENT, "chat", {"spec": {"source": "hf://a/b@main"}}, "llm")
    found = await lab.run("read_deployment", ReadDeployment(namespace="llm", name="chat"))
    assert found.found
    assert found.spec is None
    assert "source" in found.problem
    gone = await lab.run("read_deployment", ReadDeployment(namespace="llm", name="nobody"))
    assert not gone.found


async def test_a_survey_tells_what_stands_there(lab: Lab) -> None:
    await lab.run("create_workload", create())
    await _bound(lab)
    found = await lab.run("survey", SurveyInput(site="tokyo", namespace="llm"))
    assert [(p.hold, p.node, p.gpus) for p in found.pods] == [("h7", "n1", {"nvidia.com/gpu": 1})]
    assert found.allocatable["n1"]["nvidia.com/gpu"] == 4
