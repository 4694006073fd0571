"""One contract for the API server: our client's every verb and option, on the simulation and on the real thing."""

from __future__ import annotations

import asyncio
import base64
import json
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from activities import (
    CRD,
    DEPLOYMENT,
    ENDPOINT_SLICE,
    EVENT,
    LEASE,
    MODEL_DEPLOYMENT,
    NAMESPACE,
    NODE,
    POD,
    SECRET,
    SERVICE,
    Expired,
    Kind,
    Object,
    WatchEvent,
)
from activities.clients.kubernetes import KubernetesCluster
from activities.cluster import ClusterActivities, NodeRef
from sim.cluster import SimCluster
from sim.controlplane import ControlPlane
from sunfleet import manifests, names, objects
from sunfleet.crd import crd
from sunfleet.errors import AccessDenied, Conflict, Missing, Throttled, Unfit, Unreachable
from sunfleet.model import Engine, ModelSpec, SiteSpec, Source
from tests.traffic import RECORD, Traffic

PATIENCE = 30.0
MODEL = ModelSpec(
    name="chat-8b",
    source=Source(scheme="hf", repo="a/b", revision="1" * 40),
    served_name="chat",
    engine=Engine(image="sim/vllm", key_secret="k"),
    tensor=2,
    fleet="f",
)


@dataclass(slots=True)
class Server:
    """An API server under the contract; `namespace` is this test's own."""

    cluster: KubernetesCluster
    namespace: str
    kubeconfig: Path
    sim: SimCluster | None
    plane: ControlPlane | None

    @property
    def site(self) -> SiteSpec:
        return SiteSpec(name="tokyo", zone="Asia/Tokyo", namespace=self.namespace, endpoint="http://x/{deployment}/v1")

    def name(self, stem: str) -> str:
        return f"{stem}-{uuid.uuid4().hex[:8]}"


@pytest.fixture(params=["simulation", pytest.param("real", marks=pytest.mark.real_kubernetes)])
async def server(
    request: pytest.FixtureRequest, tmp_path: Path, traffic: Traffic, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Server]:
    namespace = f"t-{uuid.uuid4().hex[:8]}"
    sim: SimCluster | None = None
    plane: ControlPlane | None = None
    if request.param == "simulation":
        sim = SimCluster()
        await sim.start()
        kubeconfig = sim.write_kubeconfig(tmp_path / "kubeconfig")
    else:
        monkeypatch.setenv(RECORD, str(traffic.contract))
        plane = request.getfixturevalue("control_plane")
        kubeconfig = plane.kubeconfig
    cluster = await KubernetesCluster.from_kubeconfig(str(kubeconfig))
    await cluster.apply(NAMESPACE, _object("v1", "Namespace", namespace), "test")
    await cluster.apply(CRD, crd(), "test")
    await eventually(lambda: _lists(cluster, namespace))
    yield Server(cluster, namespace, kubeconfig, sim, plane)
    await cluster.close()
    if sim is not None:
        await sim.stop()


def _object(version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Object:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": meta} | more


async def _lists(cluster: KubernetesCluster, namespace: str) -> bool:
    try:
        await cluster.list(MODEL_DEPLOYMENT, namespace)
    except Missing:
        return False
    return True


async def eventually(check: Any, within: float = PATIENCE) -> Any:
    """Ask until the answer is true: controllers work in their own time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while True:
        found = await check()
        if found:
            return found
        assert loop.time() < deadline, "it did not come about"
        await asyncio.sleep(0.1)


def _secret(name: str, namespace: str, value: str = "v") -> Object:
    return _object("v1", "Secret", name, namespace, data={"key": base64.b64encode(value.encode()).decode()})


async def _node(server: Server, gpus: int = 4, **spec: Any) -> Object:
    """A node as a kubelet registers it: Ready, with devices, renewed once."""
    name = server.name("node")
    await server.cluster.create(NODE, _object("v1", "Node", name, spec=spec))
    sizes = {"cpu": "64", "memory": "512Gi", "pods": "100", "nvidia.com/gpu": str(gpus)}
    ready = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "",
        "lastHeartbeatTime": "2026-01-01T00:00:00Z",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    status = {"capacity": sizes, "allocatable": sizes, "conditions": [ready]}
    await server.cluster.patch(NODE, name, {"status": status}, subresource="status")
    lease = {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": "2026-12-01T00:00:00.000000Z"}
    with suppress(Conflict):
        await server.cluster.create(
            LEASE, _object("coordination.k8s.io/v1", "Lease", name, "kube-node-lease", spec=lease)
        )

    async def untainted() -> Object | None:
        node = await server.cluster.get(NODE, name)
        assert node is not None
        return (
            None if any(t["key"].startswith("node.kubernetes.io") for t in node["spec"].get("taints") or []) else node
        )

    found: Object = await eventually(untainted)
    return found


def _workload(server: Server, node: str, hold: str = "h1") -> Object:
    replica = manifests.Replica(
        name=names.replica_name(MODEL.name, hold), hold=hold, generation=1, node=node, owner="replica/x", directory="d"
    )
    return manifests.workload(MODEL, server.site, replica)


async def _pods(server: Server, hold: str = "h1") -> list[Object]:
    return list((await server.cluster.list(POD, server.namespace, f"{names.HOLD}={hold}")).items)


async def _one_pod(server: Server, hold: str = "h1") -> Object:
    async def one() -> Object | None:
        pods = await _pods(server, hold)
        return pods[0] if len(pods) == 1 else None

    found: Object = await eventually(one)
    return found


async def _bound(server: Server, hold: str = "h1") -> Object:
    async def bound() -> Object | None:
        pods = [p for p in await _pods(server, hold) if p["spec"].get("nodeName")]
        return pods[0] if pods else None

    found: Object = await eventually(bound)
    return found


async def _report_running(server: Server, pod: Object, ip: str, *, proven: bool) -> None:
    """What a kubelet writes once the containers are ready."""
    conditions = [
        {"type": "ContainersReady", "status": "True"},
        {"type": "Ready", "status": "True" if proven else "False"},
    ]
    status = {
        "phase": "Running",
        "podIP": ip,
        "podIPs": [{"ip": ip}],
        "conditions": conditions,
        "containerStatuses": [
            {
                "name": "vllm",
                "image": "sim/vllm",
                "imageID": "x",
                "ready": True,
                "restartCount": 0,
                "started": True,
                "state": {"running": {}},
                "lastState": {},
            }
        ],
    }
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
    await server.cluster.patch(POD, pod["metadata"]["name"], body, server.namespace, subresource="status")


# Objects.


async def test_what_is_not_there_is_none(server: Server) -> None:
    assert await server.cluster.get(SECRET, "nobody", server.namespace) is None


async def test_a_name_is_taken_once(server: Server) -> None:
    await server.cluster.create(SECRET, _secret("one", server.namespace))
    with pytest.raises(Conflict):
        await server.cluster.create(SECRET, _secret("one", server.namespace))


async def test_lists_are_whole_with_types_and_selected_by_labels(server: Server) -> None:
    for i in range(3):
        body = _secret(f"s{i}", server.namespace)
        body["metadata"]["labels"] = {"n": str(i), "all": "yes"}
        await server.cluster.create(SECRET, body)
    every = await server.cluster.list(SECRET, server.namespace, "all=yes")
    assert [o["metadata"]["name"] for o in every.items] == ["s0", "s1", "s2"]
    assert {(o["apiVersion"], o["kind"]) for o in every.items} == {("v1", "Secret")}
    some = await server.cluster.list(SECRET, server.namespace, "all=yes,n in (0,2),n!=2")
    assert [o["metadata"]["name"] for o in some.items] == ["s0"]
    assert (await server.cluster.list(SECRET, server.namespace, "all,missing")).items == ()


async def test_an_apply_owns_its_fields_and_removes_what_it_leaves_out(server: Server) -> None:
    body = _object("v1", "Service", "svc", server.namespace)
    body["metadata"]["labels"] = {"a": "1", "b": "2"}
    body["spec"] = {"selector": {"x": "y"}, "ports": [{"name": "http", "port": 8000, "targetPort": "http"}]}
    first = await server.cluster.apply(SERVICE, body, "sunfleet")
    await server.cluster.patch(SERVICE, "svc", {"metadata": {"labels": {"theirs": "kept"}}}, server.namespace)
    del body["metadata"]["labels"]["b"]
    second = await server.cluster.apply(SERVICE, body, "sunfleet")
    assert second["metadata"]["labels"] == {"a": "1", "theirs": "kept"}
    assert second["metadata"]["uid"] == first["metadata"]["uid"]


async def test_a_foreign_field_is_a_conflict_unless_forced(server: Server) -> None:
    body = _object("v1", "Secret", "owned", server.namespace, data={"k": "YQ=="})
    await server.cluster.apply(SECRET, body, "one")
    body["data"] = {"k": "Yg=="}
    with pytest.raises(Conflict):
        await server.cluster.apply(SECRET, body, "two", force=False)
    assert (await server.cluster.apply(SECRET, body, "two"))["data"] == {"k": "Yg=="}


async def test_the_same_apply_again_changes_nothing(server: Server) -> None:
    body = objects.deployment_object(MODEL, server.site, "f", 1)
    first = await server.cluster.apply(MODEL_DEPLOYMENT, body, names.FLEET_MANAGER)
    again = await server.cluster.apply(MODEL_DEPLOYMENT, body, names.FLEET_MANAGER)
    assert again["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]


async def test_the_object_means_what_was_meant(server: Server) -> None:
    """The API server stores a ModelDeployment such that reading gives the model back."""
    made = await server.cluster.apply(MODEL_DEPLOYMENT, objects.deployment_object(MODEL, server.site, "f", 1), "m")
    found = objects.read_deployment(made)
    assert (found.source, found.served_name, found.tensor, found.engine, found.fleet) == (
        MODEL.source,
        MODEL.served_name,
        MODEL.tensor,
        MODEL.engine,
        "f",
    )


async def test_a_floor_set_by_others_survives_the_fleets_apply(server: Server) -> None:
    body = objects.deployment_object(MODEL, server.site, "f", 1)
    await server.cluster.apply(MODEL_DEPLOYMENT, body, names.FLEET_MANAGER)
    await server.cluster.patch(MODEL_DEPLOYMENT, MODEL.name, {"spec": {"replicas": 2}}, server.namespace)
    after = await server.cluster.apply(MODEL_DEPLOYMENT, body, names.FLEET_MANAGER)
    assert after["spec"]["replicas"] == 2


async def test_the_generation_rises_with_the_spec_and_not_with_the_status(server: Server) -> None:
    body = objects.deployment_object(MODEL, server.site, "f", 1)
    first = await server.cluster.apply(MODEL_DEPLOYMENT, body, "m")
    status = _object(first["apiVersion"], first["kind"], MODEL.name, server.namespace, status={"warmth": "Hot"})
    told = await server.cluster.apply(MODEL_DEPLOYMENT, status, "s", subresource="status")
    assert told["status"]["warmth"] == "Hot"
    assert told["metadata"]["generation"] == first["metadata"]["generation"] == 1
    body["spec"]["priority"] = 7
    assert (await server.cluster.apply(MODEL_DEPLOYMENT, body, "m"))["metadata"]["generation"] == 2


async def test_a_write_to_the_object_leaves_the_status_alone_and_the_other_way_round(server: Server) -> None:
    body = objects.deployment_object(MODEL, server.site, "f", 1)
    made = await server.cluster.apply(MODEL_DEPLOYMENT, body, "m")
    status = _object(made["apiVersion"], made["kind"], MODEL.name, server.namespace, status={"warmth": "Hot"})
    await server.cluster.apply(MODEL_DEPLOYMENT, status | {"spec": {"priority": 1}}, "s", subresource="status")
    after = await server.cluster.apply(MODEL_DEPLOYMENT, body | {"status": {"warmth": "Cold"}}, "m")
    assert (after["status"]["warmth"], after["spec"]["priority"]) == ("Hot", MODEL.priority)


async def test_an_object_that_lacks_what_it_needs_is_unfit(server: Server) -> None:
    body = objects.deployment_object(MODEL, server.site, "f", 1)
    del body["spec"]["source"]
    with pytest.raises(Unfit, match="source"):
        await server.cluster.apply(MODEL_DEPLOYMENT, body, "m")
    body = objects.deployment_object(MODEL, server.site, "f", 1)
    body["spec"]["priority"] = "high"
    with pytest.raises(Unfit, match="priority"):
        await server.cluster.apply(MODEL_DEPLOYMENT, body, "m")


async def test_names_beyond_the_limits_are_unfit(server: Server) -> None:
    with pytest.raises(Unfit):
        await server.cluster.create(
            SERVICE, _object("v1", "Service", "a" * 64, server.namespace, spec={"ports": [{"port": 1}]})
        )
    with pytest.raises(Unfit):
        await server.cluster.create(SECRET, _secret("Upper", server.namespace))
    body = _secret("labelled", server.namespace)
    body["metadata"]["labels"] = {"x": "a" * 64}
    with pytest.raises(Unfit):
        await server.cluster.create(SECRET, body)


async def test_everything_that_we_name_is_within_the_limits(server: Server) -> None:
    """The longest model name gives objects that the API server takes (cases 163, 164)."""
    from dataclasses import replace

    model = replace(MODEL, name="a" * 40)
    hold = "h9999999"
    replica = manifests.Replica(
        name=names.replica_name(model.name, hold), hold=hold, generation=9999999, node="n", owner="o", directory="d"
    )
    await server.cluster.apply(SERVICE, manifests.service(model, server.site), names.MANAGER)
    await server.cluster.apply(DEPLOYMENT, manifests.workload(model, server.site, replica), names.MANAGER)
    pod = await _one_pod(server, hold)
    assert len(pod["metadata"]["name"]) <= 63


async def test_an_unknown_kind_is_missing(server: Server) -> None:
    with pytest.raises(Missing):
        await server.cluster.list(Kind("nobody.dev/v1", "Nothing", "nothings"), server.namespace)


async def test_a_wrong_token_is_denied(server: Server, tmp_path: Path) -> None:
    config = json.loads(server.kubeconfig.read_text())
    config["users"][0]["user"]["token"] = "canary-token"
    (tmp_path / "wrong").write_text(json.dumps(config))
    stranger = await KubernetesCluster.from_kubeconfig(str(tmp_path / "wrong"))
    with pytest.raises(AccessDenied) as caught:
        await stranger.list(SECRET, server.namespace)
    assert "canary" not in str(caught.value)
    await stranger.close()


async def test_a_silent_server_is_unreachable(server: Server, tmp_path: Path) -> None:
    config = json.loads(server.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    (tmp_path / "silent").write_text(json.dumps(config))
    cluster = await KubernetesCluster.from_kubeconfig(str(tmp_path / "silent"))
    with pytest.raises(Unreachable):
        await cluster.get(SECRET, "x", server.namespace)
    await cluster.close()


# Every verb and option on every kind that we use: what the rest of the code relies on is held to the real server.


def _body(server: Server, kind: Kind) -> Object:
    """The least that the API takes of a kind."""
    name, where = server.name("any"), server.namespace
    one = {"name": "c", "image": "sim/vllm"}
    specs: dict[str, dict[str, Any]] = {
        "Pod": {
            "spec": {"containers": [one], "nodeSelector": {"nowhere": "at-all"}, "automountServiceAccountToken": False}
        },
        "Service": {"spec": {"ports": [{"name": "http", "port": 80}]}},
        "Deployment": {
            "spec": {
                "replicas": 0,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [one]}},
            }
        },
        "Event": {"involvedObject": {"kind": "Pod", "name": "p", "namespace": where}, "reason": "X", "type": "Normal"},
        "Lease": {"spec": {"holderIdentity": "x", "leaseDurationSeconds": 10}},
        "EndpointSlice": {"addressType": "IPv4", "endpoints": [], "ports": []},
        "ModelDeployment": {"spec": objects.deployment_object(MODEL, server.site, "f", 1)["spec"]},
    }
    return _object(kind.api_version, kind.kind, name, where if kind.namespaced else "", **specs.get(kind.kind, {}))


EVERY = [POD, NODE, SERVICE, SECRET, EVENT, NAMESPACE, DEPLOYMENT, LEASE, ENDPOINT_SLICE, MODEL_DEPLOYMENT]


@pytest.mark.parametrize("kind", EVERY, ids=[k.kind for k in EVERY])
async def test_every_verb_and_option_on_every_kind(server: Server, kind: Kind) -> None:
    cluster, where = server.cluster, server.namespace if kind.namespaced else ""
    mark = f"mark={server.namespace}"
    for grace, by_state in ((0, False), (None, True), (None, False)):
        body = _body(server, kind)
        name = body["metadata"]["name"]
        body["metadata"]["labels"] = {"mark": server.namespace}
        made = await eventually(lambda body=body: _made(cluster, kind, body))
        uid = made["metadata"]["uid"]
        assert (await cluster.get(kind, name, where) or {})["metadata"]["uid"] == uid
        assert name in [o["metadata"]["name"] for o in (await cluster.list(kind, where)).items]
        listing = await cluster.list(kind, where, mark)
        assert name in [o["metadata"]["name"] for o in listing.items]
        told = {s: asyncio.create_task(_told(cluster, kind, where, made, s)) for s in ("", mark)}
        await cluster.patch(kind, name, {"metadata": {"annotations": {"patched": "yes"}}}, where)
        applied = _object(kind.api_version, kind.kind, name, where)
        applied["metadata"]["annotations"] = {"applied": "yes"}
        changed = await cluster.apply(kind, applied | _required(body), "contract")
        assert changed["metadata"]["annotations"].items() >= {"patched": "yes", "applied": "yes"}.items()
        state = changed["metadata"]["resourceVersion"] if by_state else None
        gone = await _delete(server, kind, changed, where, grace, state)
        assert gone
        for task in told.values():
            kinds = await asyncio.wait_for(task, PATIENCE)
            assert kinds[-1] == "DELETED"
            assert "MODIFIED" in kinds
        assert await cluster.get(kind, name, where) is None


def _required(body: Object) -> Object:
    """What an apply must repeat, as the schema wants it of every body."""
    return {k: v for k, v in body.items() if k not in ("metadata", "status")}


async def _made(cluster: KubernetesCluster, kind: Kind, body: Object) -> Object | None:
    try:
        return await cluster.create(kind, body)
    except AccessDenied:  # the namespace's service account is a moment late
        return None


async def _told(cluster: KubernetesCluster, kind: Kind, where: str, made: Object, selector: str) -> list[str]:
    """The types of one object's events, from its creation to its deletion."""
    kinds = []
    watching = cluster.watch(kind, where, made["metadata"]["resourceVersion"], selector)
    async with aclosing(watching) as events:  # type: ignore[type-var]
        async for event in events:
            if event.object["metadata"].get("uid") == made["metadata"]["uid"]:
                kinds.append(event.type)
            if kinds and kinds[-1] == "DELETED":
                return kinds
    return kinds


async def _delete(server: Server, kind: Kind, found: Object, where: str, grace: int | None, state: str | None) -> bool:
    """By uid, and by state where nobody else writes to the object meanwhile."""
    meta = found["metadata"]

    async def once() -> bool:
        fresh = await server.cluster.get(kind, meta["name"], where)
        version = (fresh or found)["metadata"]["resourceVersion"] if state else None
        try:
            return await server.cluster.delete(
                kind, meta["name"], where, uid=meta["uid"], grace_seconds=grace, resource_version=version
            )
        except Conflict:
            return False  # a controller wrote in between

    return bool(await eventually(once))


# Deletes.


async def test_a_delete_is_of_exactly_one_uid(server: Server) -> None:
    old = await server.cluster.create(SECRET, _secret("again", server.namespace))
    assert await server.cluster.delete(SECRET, "again", server.namespace, uid=old["metadata"]["uid"])
    new = await server.cluster.create(SECRET, _secret("again", server.namespace))
    assert not await server.cluster.delete(SECRET, "again", server.namespace, uid=old["metadata"]["uid"])
    assert await server.cluster.get(SECRET, "again", server.namespace) == new
    assert not await server.cluster.delete(SECRET, "never", server.namespace, uid=old["metadata"]["uid"])


async def test_a_delete_by_state_is_refused_when_the_state_moved(server: Server) -> None:
    """uid alone is not enough for a decision that was read from the state (cases 151, 152)."""
    old = await server.cluster.create(SECRET, _secret("moving", server.namespace))
    await server.cluster.patch(SECRET, "moving", {"metadata": {"labels": {"busy": "yes"}}}, server.namespace)
    with pytest.raises(Conflict):
        await server.cluster.delete(
            SECRET,
            "moving",
            server.namespace,
            uid=old["metadata"]["uid"],
            resource_version=old["metadata"]["resourceVersion"],
        )


async def test_a_patch_for_another_uid_is_refused(server: Server) -> None:
    await server.cluster.create(SECRET, _secret("p", server.namespace))
    body = {"metadata": {"uid": str(uuid.uuid4()), "labels": {"x": "y"}}}
    with pytest.raises(Unfit, match="immutable"):
        await server.cluster.patch(SECRET, "p", body, server.namespace)


async def test_a_patch_under_an_old_version_is_a_conflict(server: Server) -> None:
    old = await server.cluster.create(SECRET, _secret("v", server.namespace))
    await server.cluster.patch(SECRET, "v", {"metadata": {"labels": {"x": "y"}}}, server.namespace)
    body = {"metadata": {"resourceVersion": old["metadata"]["resourceVersion"], "labels": {"z": "z"}}}
    with pytest.raises(Conflict):
        await server.cluster.patch(SECRET, "v", body, server.namespace)


# Watches.


async def _events(server: Server, version: str, count: int, selector: str = "") -> list[WatchEvent]:
    found: list[WatchEvent] = []

    async def read() -> None:
        watching: Any = server.cluster.watch(SECRET, server.namespace, version, selector)
        async with aclosing(watching) as events:
            async for event in events:
                if event.type != "BOOKMARK":
                    found.append(event)
                if len(found) == count:
                    return

    await asyncio.wait_for(read(), PATIENCE)
    return found


async def test_a_watch_tells_what_happened_after_a_list(server: Server) -> None:
    await server.cluster.create(SECRET, _secret("before", server.namespace))
    version = (await server.cluster.list(SECRET, server.namespace)).resource_version
    made = await server.cluster.create(SECRET, _secret("w", server.namespace))
    await server.cluster.patch(SECRET, "w", {"metadata": {"labels": {"x": "y"}}}, server.namespace)
    await server.cluster.delete(SECRET, "w", server.namespace, uid=made["metadata"]["uid"])
    events = await _events(server, version, 3)
    assert [e.type for e in events] == ["ADDED", "MODIFIED", "DELETED"]
    versions = [int(e.object["metadata"]["resourceVersion"]) for e in events]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


async def test_a_selected_watch_loses_what_no_longer_matches(server: Server) -> None:
    version = (await server.cluster.list(SECRET, server.namespace)).resource_version
    body = _secret("sel", server.namespace)
    body["metadata"]["labels"] = {"in": "yes"}
    await server.cluster.create(SECRET, _secret("other", server.namespace))
    await server.cluster.create(SECRET, body)
    await server.cluster.patch(SECRET, "sel", {"metadata": {"labels": {"in": "no"}}}, server.namespace)
    events = await _events(server, version, 2, "in=yes")
    assert [(e.type, e.object["metadata"]["name"]) for e in events] == [("ADDED", "sel"), ("DELETED", "sel")]


async def test_a_watch_from_too_long_ago_is_expired(server: Server) -> None:
    """410: the history from there is gone, whether the watch is refused or begins with an ERROR event."""
    if server.sim is not None:
        server.sim.store.oldest = server.sim.store.version
    if server.plane is not None:
        await server.plane.compact()
    watching: Any = server.cluster.watch(MODEL_DEPLOYMENT, server.namespace, "1")
    async with aclosing(watching) as events:
        with pytest.raises(Expired):
            await asyncio.wait_for(anext(events), PATIENCE)


# Nodes and scheduling.


async def test_a_replica_lands_on_its_node_and_holds_its_devices(server: Server) -> None:
    other, node = await _node(server), await _node(server)
    assert other["metadata"]["name"] != node["metadata"]["name"]
    await server.cluster.apply(DEPLOYMENT, _workload(server, node["metadata"]["name"]), names.MANAGER)
    pod = await _bound(server)
    assert pod["spec"]["nodeName"] == node["metadata"]["name"]
    assert pod["metadata"]["labels"][names.HOLD] == "h1"
    assert pod["metadata"]["annotations"][names.OWNER] == "replica/x"


async def test_without_room_the_scheduler_says_so(server: Server) -> None:
    node = await _node(server, gpus=1)
    await server.cluster.apply(DEPLOYMENT, _workload(server, node["metadata"]["name"]), names.MANAGER)

    async def said() -> str:
        for condition in (await _one_pod(server))["status"].get("conditions") or []:
            if condition["type"] == "PodScheduled" and condition["status"] == "False":
                return f"{condition['reason']}: {condition['message']}"
        return ""

    message = await eventually(said)
    assert message.startswith("Unschedulable: 0/")
    assert "Insufficient nvidia.com/gpu" in message


async def test_a_closed_node_takes_nothing_and_an_opened_one_does(server: Server) -> None:
    """Through the very activities of a take-back: taints of others stay, the list is written whole."""
    meta = (await _node(server))["metadata"]
    theirs = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    await server.cluster.patch(NODE, meta["name"], {"spec": {"taints": [theirs]}})
    acts, ref = ClusterActivities(server.cluster), NodeRef(node=meta["name"], uid=meta["uid"])
    assert await acts.close_node(ref)
    closed = await server.cluster.get(NODE, meta["name"])
    assert closed is not None
    assert {t["key"] for t in closed["spec"]["taints"]} >= {"nvidia.com/gpu", "sunfleet.dev/take-back"}
    await server.cluster.apply(DEPLOYMENT, _workload(server, meta["name"]), names.MANAGER)

    async def refused() -> bool:
        conditions = (await _one_pod(server))["status"].get("conditions") or []
        return any(c["type"] == "PodScheduled" and c["status"] == "False" for c in conditions)

    await eventually(refused)
    assert await acts.open_node(ref)
    assert (await _bound(server))["spec"]["nodeName"] == meta["name"]
    opened = await server.cluster.get(NODE, meta["name"])
    assert opened is not None
    assert [t["key"] for t in opened["spec"]["taints"]] == ["nvidia.com/gpu"]
    assert not await acts.open_node(ref), "what we did not close is left as it is"
    assert not await acts.close_node(NodeRef(node=meta["name"], uid="another"))


async def test_a_leaving_pod_holds_its_devices_until_the_kubelet_is_done(server: Server) -> None:
    """Terminating pods count: nothing else fits before the final delete with grace 0."""
    node = (await _node(server, gpus=2))["metadata"]["name"]
    workload = await server.cluster.apply(DEPLOYMENT, _workload(server, node, "h1"), names.MANAGER)
    first = await _bound(server, "h1")
    await _report_running(server, first, "192.0.2.10", proven=False)
    await server.cluster.delete(
        DEPLOYMENT, workload["metadata"]["name"], server.namespace, uid=workload["metadata"]["uid"]
    )

    async def leaving() -> bool:
        return all(p["metadata"].get("deletionTimestamp") for p in await _pods(server, "h1"))

    await eventually(leaving)
    await server.cluster.apply(DEPLOYMENT, _workload(server, node, "h2"), names.MANAGER)
    second = await _one_pod(server, "h2")
    await asyncio.sleep(1.0)  # a scheduler that is wrong would have bound it by now
    assert (await server.cluster.get(POD, second["metadata"]["name"], server.namespace) or {})["spec"].get(
        "nodeName"
    ) is None
    meta = first["metadata"]
    await server.cluster.delete(POD, meta["name"], server.namespace, uid=meta["uid"], grace_seconds=0)
    assert (await _bound(server, "h2"))["spec"]["nodeName"] == node


async def test_a_lost_pod_is_made_again_under_another_uid(server: Server) -> None:
    node = (await _node(server))["metadata"]["name"]
    await server.cluster.apply(DEPLOYMENT, _workload(server, node), names.MANAGER)
    old = await _bound(server)
    await server.cluster.delete(
        POD, old["metadata"]["name"], server.namespace, uid=old["metadata"]["uid"], grace_seconds=0
    )

    async def another() -> bool:
        uids = {p["metadata"]["uid"] for p in await _pods(server)}
        return bool(uids) and old["metadata"]["uid"] not in uids

    await eventually(another)


async def test_a_pod_is_behind_the_service_only_while_its_gate_is_open(server: Server) -> None:
    """The readiness gate keeps an unproven engine out of every EndpointSlice."""
    node = (await _node(server))["metadata"]["name"]
    await server.cluster.apply(SERVICE, manifests.service(MODEL, server.site), names.MANAGER)
    await server.cluster.apply(DEPLOYMENT, _workload(server, node), names.MANAGER)
    pod = await _bound(server)
    await _report_running(server, pod, "192.0.2.20", proven=False)

    async def ready() -> list[str]:
        slices = (await server.cluster.list(ENDPOINT_SLICE, server.namespace)).items
        return [
            a for s in slices for e in s.get("endpoints") or [] if e["conditions"].get("ready") for a in e["addresses"]
        ]

    async def known() -> bool:
        slices = (await server.cluster.list(ENDPOINT_SLICE, server.namespace)).items
        return any(s.get("endpoints") for s in slices)

    await eventually(known)
    assert await ready() == []
    gate = {
        "type": names.PROVEN,
        "status": "True",
        "reason": "Proven",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": {"conditions": [gate]}}
    await server.cluster.patch(POD, pod["metadata"]["name"], body, server.namespace, subresource="status")
    await _report_running(server, pod, "192.0.2.20", proven=True)
    assert await eventually(ready) == ["192.0.2.20"]
    found = await server.cluster.get(POD, pod["metadata"]["name"], server.namespace)
    assert found is not None
    assert {c["type"]: c["status"] for c in found["status"]["conditions"]}[names.PROVEN] == "True", "merged by type"


async def test_an_address_of_this_machine_is_no_endpoint(server: Server) -> None:
    body = _object(
        "discovery.k8s.io/v1",
        "EndpointSlice",
        "loop",
        server.namespace,
        addressType="IPv4",
        endpoints=[{"addresses": ["127.0.0.1"]}],
        ports=[],
    )
    with pytest.raises(Unfit):
        await server.cluster.create(ENDPOINT_SLICE, body)


async def test_a_deployments_selector_is_for_ever(server: Server) -> None:
    body = _workload(server, "n")
    await server.cluster.apply(DEPLOYMENT, body, names.MANAGER)
    body["spec"]["selector"]["matchLabels"] = {names.HOLD: "h2"}
    body["spec"]["template"]["metadata"]["labels"][names.HOLD] = "h2"
    with pytest.raises(Unfit):
        await server.cluster.apply(DEPLOYMENT, body, names.MANAGER)


async def test_a_deadline_of_its_own_is_refused_in_a_template(server: Server) -> None:
    body = _workload(server, "n")
    body["spec"]["template"]["spec"]["activeDeadlineSeconds"] = 60
    with pytest.raises(Unfit):
        await server.cluster.create(DEPLOYMENT, body)


async def test_an_image_pod_runs_once_and_is_deleted(server: Server) -> None:
    node = (await _node(server))["metadata"]["name"]
    body = manifests.prepull("sim/vllm", node, server.namespace, "pull-x")
    await eventually(lambda: _created(server, body))

    async def bound() -> bool:
        pod = await server.cluster.get(POD, "pull-x", server.namespace)
        return bool(pod and pod["spec"].get("nodeName") == node)

    await eventually(bound)
    pod = await server.cluster.get(POD, "pull-x", server.namespace)
    assert pod is not None
    assert await server.cluster.delete(POD, "pull-x", server.namespace, uid=pod["metadata"]["uid"], grace_seconds=0)
    assert await server.cluster.get(POD, "pull-x", server.namespace) is None


async def _created(server: Server, body: Object) -> bool:
    """A new namespace gets its service account a moment later; a pod before that is refused."""
    try:
        await server.cluster.create(POD, body)
    except AccessDenied:
        return False
    return True


async def test_an_event_is_posted_once(server: Server) -> None:
    made = await server.cluster.apply(MODEL_DEPLOYMENT, objects.deployment_object(MODEL, server.site, "f", 1), "m")
    involved = {
        "apiVersion": made["apiVersion"],
        "kind": made["kind"],
        "name": MODEL.name,
        "namespace": server.namespace,
        "uid": made["metadata"]["uid"],
    }
    body = _object(
        "v1", "Event", "e1", server.namespace, involvedObject=involved, reason="X", message="m", type="Normal"
    )
    await server.cluster.create(EVENT, body)
    with pytest.raises(Conflict):
        await server.cluster.create(EVENT, body)


# A sick server: the simulation alone can be made sick.


@pytest.fixture
async def sick(tmp_path: Path) -> AsyncIterator[tuple[SimCluster, KubernetesCluster]]:
    sim = SimCluster()
    await sim.start()
    cluster = await KubernetesCluster.from_kubeconfig(str(sim.write_kubeconfig(tmp_path / "kubeconfig")))
    yield sim, cluster
    await cluster.close()
    await sim.stop()


async def test_busy_is_told_with_when_to_come_back(sick: tuple[SimCluster, KubernetesCluster]) -> None:
    sim, cluster = sick
    for status in (429, 503):
        sim.sickness.status, sim.sickness.retry_after = status, 7
        with pytest.raises(Throttled) as caught:
            await cluster.list(NODE)
        assert caught.value.retry_in is not None
        assert caught.value.retry_in.total_seconds() == 7


async def test_a_failing_server_is_unreachable(sick: tuple[SimCluster, KubernetesCluster]) -> None:
    sim, cluster = sick
    sim.sickness.status = 500
    with pytest.raises(Unreachable):
        await cluster.list(NODE)


async def test_a_forbidden_verb_is_denied(sick: tuple[SimCluster, KubernetesCluster]) -> None:
    sim, cluster = sick
    sim.sickness.forbidden.add(("list", "nodes"))
    with pytest.raises(AccessDenied):
        await cluster.list(NODE)


async def test_a_rotated_token_is_read_again(sick: tuple[SimCluster, KubernetesCluster], tmp_path: Path) -> None:
    """A long-lived process meets a new token: it re-reads its credentials on the first 401 (case 158)."""
    sim, cluster = sick
    sim.token = "another"
    sim.write_kubeconfig(tmp_path / "kubeconfig")
    assert (await cluster.list(NAMESPACE)).items == ()


async def test_the_objects_survive_a_kill(tmp_path: Path) -> None:
    """etcd keeps what it acknowledged; so does the simulation's journal."""
    sim = SimCluster(snapshot=tmp_path / "journal")
    await sim.start()
    cluster = await KubernetesCluster.from_kubeconfig(str(sim.write_kubeconfig(tmp_path / "kubeconfig")))
    made = await cluster.create(NAMESPACE, _object("v1", "Namespace", "kept"))
    await cluster.close()
    await sim.stop()
    again = SimCluster(snapshot=tmp_path / "journal")
    assert again.store.objects["namespaces", "", "kept"] == made
