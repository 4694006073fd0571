"""The files that an administrator applies: the CRD and the rights of a site's worker, on a real API server."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from temporalio.testing import ActivityEnvironment

from activities import DEPLOYMENT, MODEL_DEPLOYMENT, NAMESPACE, NODE, POD, SECRET, Kind, Object
from activities.clients.kubernetes import KubernetesCluster
from activities.cluster import (
    ApplyDeployments,
    ClusterActivities,
    CreateWorkload,
    EnsureImage,
    ForceRetire,
    MarkProven,
    NodeRef,
    ReadDeployment,
    RetireWorkload,
    WorkloadRef,
    WriteStatus,
)
from sim.controlplane import ControlPlane
from sunfleet import manifests, names, objects
from sunfleet.crd import crd
from sunfleet.errors import AccessDenied, BadInput, Unfit
from sunfleet.ledger import Hold
from sunfleet.messages import SurveyInput
from sunfleet.reasons import Reason
from sunfleet.warmth import Warmth
from tests.sunfleet.test_manifests import IMAGE, MODEL, SITE
from tests.sunfleet.test_objects import NOW, facts, made

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
CRD_FILE, RBAC_FILE = DEPLOY / "crds" / "modeldeployments.yaml", DEPLOY / "rbac.yaml"
NAMESPACED = "llm"


def test_the_crd_file_is_what_the_code_says() -> None:
    """`python deploy/write.py` writes it."""
    assert yaml.safe_load(CRD_FILE.read_text()) == crd()


def test_the_rights_name_no_wildcard() -> None:
    roles = [d for d in yaml.safe_load_all(RBAC_FILE.read_text()) if d["kind"] in ("Role", "ClusterRole")]
    rules = [rule for role in roles for rule in role["rules"]]
    assert rules
    assert not any("*" in rule[field] for rule in rules for field in ("apiGroups", "resources", "verbs"))


@pytest.fixture(scope="module")
async def admin(control_plane: ControlPlane) -> AsyncIterator[KubernetesCluster]:
    """An administrator's client, with the files applied as people would."""
    cluster = await KubernetesCluster.from_kubeconfig(str(control_plane.kubeconfig))
    await cluster.apply(NAMESPACE, _object(NAMESPACE, NAMESPACED), "test")
    for file in (CRD_FILE, RBAC_FILE):
        await asyncio.to_thread(control_plane.kubectl, "apply", "--server-side", "--force-conflicts", "-f", str(file))
    crds = ("wait", "--for=condition=Established", "--timeout=30s", "crd/modeldeployments.sunfleet.dev")
    await asyncio.to_thread(control_plane.kubectl, *crds)
    yield cluster
    await cluster.close()


@pytest.fixture
async def worker(
    admin: KubernetesCluster, control_plane: ControlPlane, tmp_path: Path
) -> AsyncIterator[KubernetesCluster]:
    """A client with the rights of a site's worker, and no others."""
    token = await asyncio.to_thread(control_plane.kubectl, "create", "token", "sunfleet-site", "-n", NAMESPACED)
    config = json.loads(control_plane.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": token.strip()}
    (tmp_path / "kubeconfig").write_text(json.dumps(config))
    cluster = await KubernetesCluster.from_kubeconfig(str(tmp_path / "kubeconfig"))
    yield cluster
    await cluster.close()


def _object(kind: Kind, name: str, namespace: str = "", **more: Any) -> Object:
    meta = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta} | more


async def _eventually(check: Any) -> Any:
    for _ in range(300):
        if found := await check():
            return found
        await asyncio.sleep(0.1)
    raise AssertionError("it did not come about")


@pytest.mark.real_kubernetes
async def test_defaults_are_filled_in_by_the_api_server(admin: KubernetesCluster) -> None:
    spec = {"source": MODEL.source.uri, "servedName": "m", "engine": {"image": IMAGE}}
    body = _object(MODEL_DEPLOYMENT, "sparse", NAMESPACED, spec=spec)
    found = await admin.apply(MODEL_DEPLOYMENT, body, "test")
    assert found["spec"]["parallel"] == {"tensor": 1, "pipeline": 1, "data": 1}
    assert (found["spec"]["priority"], found["spec"]["replicas"]) == (100, 0)
    assert objects.read_deployment(found) == objects.read_deployment(body)


@pytest.mark.real_kubernetes
@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"source": "hf://a/b@main"}, "branches and tags are refused"),
        ({"engine__image": "vllm/vllm-openai:latest"}, "name the image by digest"),
        ({"parallel__tensor": 0}, "greater than or equal to 1"),
        ({"task": "Sing"}, "Unsupported value"),
        ({"priority": 1001}, "less than or equal to 1000"),
        ({"engine__keySecretRef": {"name": "Not A Name"}}, "keySecretRef.name"),
    ],
)
async def test_the_api_server_refuses_what_it_can_tell(
    admin: KubernetesCluster, spec: dict[str, Any], said: str
) -> None:
    with pytest.raises(Unfit, match=said):
        await admin.create(MODEL_DEPLOYMENT, _renamed(made(**spec), "refused"))


def _renamed(obj: Object, name: str) -> Object:
    return obj | {"metadata": {"name": name, "namespace": NAMESPACED}}


@pytest.mark.real_kubernetes
async def test_what_later_releases_carry_out_is_stored_and_refused_by_us(admin: KubernetesCluster) -> None:
    for name, spec in {
        "oci": {"source": "oci://r/m@sha256:" + "a" * 64},
        "gang": {"topology": "MultiNode", "parallel__pipeline": 2},
        "lora": {"adapters": [{"name": "a", "source": "b"}]},
        "floors": {"warmth": {"min": {"staged": 4}, "max": {"hot": 8}, "windows": []}},
    }.items():
        found = await admin.apply(MODEL_DEPLOYMENT, _renamed(made(**spec), name), "test")  # type: ignore[arg-type]
        with pytest.raises(BadInput) as refused:
            objects.read_deployment(found)
        assert {p.code for p in refused.value.problems} == {"NotYetSupported"}


@pytest.mark.real_kubernetes
async def test_people_see_and_scale_it_with_kubectl(admin: KubernetesCluster, control_plane: ControlPlane) -> None:
    await admin.apply(MODEL_DEPLOYMENT, _renamed(made(), "shown"), "test")
    status = objects.status(
        facts(), base_url="https://x/v1", served_name="m", model="shown", now=NOW, recent=(), of=made()
    )
    told = objects.with_transitions(status, (), "2026-11-02T06:41:00Z")
    body = _object(MODEL_DEPLOYMENT, "shown", NAMESPACED, status=told)
    written = await admin.apply(MODEL_DEPLOYMENT, body, names.MANAGER, subresource="status")
    assert written["status"] == told, "nothing of the status is dropped"
    kubectl = control_plane.kubectl
    await asyncio.to_thread(kubectl, "scale", "mdep/shown", "--replicas=3", "-n", NAMESPACED)
    table = (await asyncio.to_thread(kubectl, "get", "mdep", "shown", "-n", NAMESPACED)).splitlines()
    assert table[0].split() == ["NAME", "WARMTH", "READY", "WANTED", "GPUS", "ETA", "REASON", "AGE"]
    assert table[1].split()[:7] == ["shown", "Hot", "2", "4", "16", "2026-11-02T06:53:20Z", "Opening"]
    found = await admin.get(MODEL_DEPLOYMENT, "shown", NAMESPACED)
    assert found is not None
    assert found["spec"]["replicas"] == 3
    assert "shown" in await asyncio.to_thread(kubectl, "get", "sunfleet", "-n", NAMESPACED)


@pytest.mark.real_kubernetes
async def test_rendered_objects_are_taken_as_they_are(admin: KubernetesCluster) -> None:
    """The API server's own defaults are added, and nothing of ours is changed or dropped."""
    replica = manifests.Replica(
        name=names.replica_name("9b-chat", "h9999999"),
        hold="h9999999",
        generation=9999999,
        node="n",
        owner="o",
        directory="d",
    )
    model = objects.read_deployment(made() | {"metadata": {"name": "9b-chat", "labels": {}}})
    for kind, body in (
        (DEPLOYMENT, manifests.workload(model, SITE, replica)),
        (POD, manifests.prepull(IMAGE, "n", NAMESPACED, "pull-1")),
        (Kind("v1", "Service", "services"), manifests.service(model, SITE)),
    ):
        stored = await _eventually(lambda kind=kind, body=body: _stored(admin, kind, body))
        assert _within(body, stored) == []
        await admin.delete(kind, body["metadata"]["name"], NAMESPACED, uid=stored["metadata"]["uid"], grace_seconds=0)


async def _stored(admin: KubernetesCluster, kind: Kind, body: Object) -> Object | None:
    try:
        return await admin.apply(kind, body, names.MANAGER)
    except AccessDenied:
        return None  # the namespace's service account is not there yet


def _within(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """The paths at which a stored object says something else than ours; it may say more, also in lists."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [p for k, v in ours.items() for p in _within(v, theirs.get(k), f"{path}.{k}")]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) <= len(theirs):
        return [p for i, v in enumerate(ours) for p in _within(v, theirs[i], f"{path}[{i}]")]
    return [] if ours == theirs else [f"{path}: {ours!r} is {theirs!r}"]


@pytest.mark.real_kubernetes
async def test_a_workers_rights_are_enough_for_all_that_it_does(
    admin: KubernetesCluster, worker: KubernetesCluster
) -> None:
    node = await _node(admin, "rights-node")
    acts, run = ClusterActivities(worker), ActivityEnvironment().run
    site, model = SITE, MODEL
    apply = ApplyDeployments(fleet="prod", revision=1, site=site, models=(model,))
    assert (await run(acts.apply_deployments, apply)).applied == (model.name,)
    read = await run(acts.read_deployment, ReadDeployment(namespace=NAMESPACED, name=model.name))
    assert read.spec is not None
    hold = Hold(
        id="h1", generation=1, owner="o", key="k1", rung=Warmth.HOT, node=node["metadata"]["name"],
        node_uid=node["metadata"]["uid"], resource="nvidia.com/gpu", count=4,
    )  # fmt: skip
    create = CreateWorkload(site=site, model=model, hold=hold, owner="replica/x", directory="d")
    await run(acts.create_workload, create)
    ref = WorkloadRef(namespace=NAMESPACED, name=names.replica_name(model.name, "h1"), hold="h1")

    async def bound() -> Any:
        pods = await run(acts.observe_pods, ref)
        return pods[0] if pods and pods[0].scheduled else None

    pod = await _eventually(bound)
    assert await run(acts.mark_proven, MarkProven(namespace=NAMESPACED, pod=pod.name, uid=pod.uid, proven=True))
    note = Reason(id="e-1", at=NOW, actor="deployment", code="Proven", message="it answered")
    written = WriteStatus(
        namespace=NAMESPACED, name=model.name, uid=read.uid, facts=facts(), served_name="m", base_url="https://x/v1",
        now=NOW, reasons=(note,),
    )  # fmt: skip
    assert await run(acts.write_status, written)
    assert (await run(acts.survey, SurveyInput(site="tokyo", namespace=NAMESPACED))).workloads == {ref.name: "h1"}
    closing = NodeRef(node=node["metadata"]["name"], uid=node["metadata"]["uid"])
    assert await run(acts.close_node, closing)
    assert await run(acts.open_node, closing)
    assert await run(acts.ensure_image, EnsureImage(site=site, node=closing.node, image=IMAGE)) is False
    for kind, namespace in ((MODEL_DEPLOYMENT, NAMESPACED), (POD, ""), (NODE, "")):
        await _watched(worker, kind, namespace)
    retire = RetireWorkload(namespace=NAMESPACED, name=ref.name, hold="h1", grace_seconds=1)
    ended: asyncio.Future[int] = asyncio.ensure_future(run(acts.retire_workload, retire))
    await _end_as_a_kubelet(admin, ended)
    assert await run(acts.force_retire, ForceRetire(namespace=NAMESPACED, node=closing.node)) == 0
    gone = ApplyDeployments(fleet="prod", revision=2, site=site, models=())
    assert (await run(acts.apply_deployments, gone)).removed == (model.name,)


async def _node(admin: KubernetesCluster, name: str) -> Object:
    await admin.create(NODE, _object(NODE, name))
    sizes = {"cpu": "64", "memory": "512Gi", "pods": "100", "nvidia.com/gpu": "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
    times = {"lastHeartbeatTime": "2026-12-01T00:00:00Z", "lastTransitionTime": "2026-12-01T00:00:00Z"}
    status = {
        "capacity": sizes,
        "allocatable": sizes,
        "conditions": [ready | times],
        "images": [{"names": [IMAGE], "sizeBytes": 1}],
    }
    return await admin.patch(NODE, name, {"status": status}, subresource="status")


async def _watched(worker: KubernetesCluster, kind: Kind, namespace: str) -> None:
    """List, then watch from there until the first thing is heard: a bookmark at least, or the end."""
    listing = await worker.list(kind, namespace)
    watch = worker.watch(kind, namespace, listing.resource_version)
    try:
        await asyncio.wait_for(anext(aiter(watch)), 2)
    except TimeoutError:
        pass  # silence is a right as well: a refusal would have been heard
    except StopAsyncIteration:
        pass


async def _end_as_a_kubelet(admin: KubernetesCluster, ended: asyncio.Future[int]) -> None:
    """Confirm every deletion until the retirement is done."""
    for _ in range(300):
        if ended.done():
            break
        for pod in (await admin.list(POD, NAMESPACED)).items:
            if pod["metadata"].get("deletionTimestamp"):
                await admin.delete(
                    POD, pod["metadata"]["name"], NAMESPACED, uid=pod["metadata"]["uid"], grace_seconds=0
                )
        await asyncio.sleep(0.1)
    assert await ended >= 1


@pytest.mark.real_kubernetes
async def test_a_workers_rights_are_no_more_than_that(admin: KubernetesCluster, worker: KubernetesCluster) -> None:
    data = {"api-key": base64.b64encode(b"k").decode()}
    for name in ("sunfleet-engine-key", "somebody-elses"):
        await admin.apply(SECRET, _object(SECRET, name, NAMESPACED, data=data), "test")
    assert await worker.get(SECRET, "sunfleet-engine-key", NAMESPACED) is not None
    with pytest.raises(AccessDenied):
        await worker.get(SECRET, "somebody-elses", NAMESPACED)
    with pytest.raises(AccessDenied):
        await worker.list(SECRET, NAMESPACED)
    with pytest.raises(AccessDenied):
        await worker.create(POD, manifests.prepull(IMAGE, "n", "default", "p"))
    with pytest.raises(AccessDenied):
        await worker.delete(NODE, "any", uid="u")
    with pytest.raises(AccessDenied):
        await worker.list(DEPLOYMENT, "kube-system")
