"""The janitor ends what nobody owns, and nothing else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from activities import DEPLOYMENT
from sim.cluster.server import Sickness
from sunfleet import manifests, names
from sunfleet.errors import Unreachable
from sunfleet.ledger import Hold
from sunfleet.messages import Released
from sunfleet.model import Engine, ModelSpec, SiteSpec, Source
from sunfleet.warmth import Warmth
from tests.workers import clusters
from tests.workers.clusters import NS, Lab, Told, eventually
from workers.sweeper import Sweeper

SITE = SiteSpec(name="tokyo", zone="Asia/Tokyo", endpoint="http://x/{deployment}/v1")
MODEL = ModelSpec(
    name="chat",
    source=Source(scheme="hf", repo="a/b", revision="1" * 40),
    served_name="chat",
    engine=Engine(image="sim/vllm"),
)


@dataclass(slots=True)
class Owners:
    """What Temporal would say."""

    running: set[str] = field(default_factory=set)
    held: list[Hold] = field(default_factory=list)
    down: bool = False

    async def runs(self, workflow_id: str) -> bool:
        if self.down:
            raise Unreachable("Temporal did not answer")
        return workflow_id in self.running

    async def holds(self, site: str) -> tuple[Hold, ...]:
        assert site == "tokyo"
        return tuple(self.held)


def hold(id: str) -> Hold:
    return Hold(
        id=id,
        generation=int(id[1:]),
        owner="model/tokyo/llm/chat",
        key="k",
        rung=Warmth.HOT,
        node="n1",
        node_uid="u",
        resource="nvidia.com/gpu",
        count=1,
    )


def owner(id: str) -> str:
    return names.replica_id("tokyo", NS, "chat", id)


@pytest.fixture
async def lab(tmp_path: Path) -> AsyncIterator[Lab]:
    async with clusters.lab(tmp_path) as found:
        await found.node("n1")
        yield found


async def _workload(lab: Lab, id: str) -> None:
    replica = manifests.Replica(
        name=names.replica_name("chat", id), hold=id, generation=int(id[1:]), node="n1", owner=owner(id), directory="d"
    )
    await lab.cluster.apply(DEPLOYMENT, manifests.workload(MODEL, SITE, replica), names.MANAGER)
    await eventually(lambda: any(o["metadata"]["labels"].get(names.HOLD) == id for o in lab.sim.store.of("pods", NS)))


def sweeper(lab: Lab, owners: Owners, told: Told) -> Sweeper:
    return Sweeper("tokyo", NS, lab.cluster, told, owners)


async def test_a_workload_without_its_replica_is_ended_and_one_with_it_stays(lab: Lab) -> None:
    await _workload(lab, "h1")
    await _workload(lab, "h2")
    swept = await sweeper(lab, Owners(running={owner("h2")}), Told()).sweep()
    assert swept.ended == (names.replica_name("chat", "h1"),)
    left = (await lab.cluster.list(DEPLOYMENT, NS)).items
    assert [w["metadata"]["labels"][names.HOLD] for w in left] == ["h2"]


async def test_what_is_not_ours_is_never_touched(lab: Lab) -> None:
    replica = manifests.Replica(name="theirs", hold="h3", generation=3, node="n1", owner=owner("h3"), directory="d")
    body = manifests.workload(MODEL, SITE, replica)
    body["metadata"]["labels"][names.MANAGED_BY] = "somebody"
    await lab.cluster.apply(DEPLOYMENT, body, "somebody")
    assert (await sweeper(lab, Owners(), Told()).sweep()).ended == ()
    assert await lab.cluster.get(DEPLOYMENT, "theirs", NS) is not None


async def test_nothing_ends_while_temporal_does_not_answer(lab: Lab) -> None:
    await _workload(lab, "h1")
    with pytest.raises(Unreachable):
        await sweeper(lab, Owners(down=True), Told()).sweep()
    assert await lab.cluster.get(DEPLOYMENT, names.replica_name("chat", "h1"), NS) is not None


async def test_a_hold_is_given_back_when_nothing_stood_on_it_twice(lab: Lab) -> None:
    told = Told()
    janitor = sweeper(lab, Owners(held=[hold("h5")]), told)
    assert (await janitor.sweep()).released == ()
    assert (await janitor.sweep()).released == ("h5",)
    assert told.signals == [(names.site_id("tokyo"), "released", Released(hold="h5"))]


async def test_a_hold_whose_replica_runs_or_whose_pods_stand_is_kept(lab: Lab) -> None:
    await _workload(lab, "h6")
    told = Told()
    janitor = sweeper(lab, Owners(running={owner("h5"), owner("h6")}, held=[hold("h5"), hold("h6")]), told)
    for _ in range(3):
        await janitor.sweep()
    assert told.signals == []


async def test_one_empty_answer_gives_no_hold_back(lab: Lab) -> None:
    """The replica was terminated, its pods stand, and the API server restores itself with empty lists."""
    await _workload(lab, "h7")
    told = Told()
    janitor = sweeper(lab, Owners(held=[hold("h7")]), told)
    lab.sim.sickness = Sickness(empty="pods,deployments")
    await janitor.sweep()
    lab.sim.sickness = Sickness()
    assert (await janitor.sweep()).ended == (names.replica_name("chat", "h7"),)
    assert told.signals == [], "given back while it stood"
    await lab.end_pods()
    await janitor.sweep()
    assert (await janitor.sweep()).released == ("h7",)
