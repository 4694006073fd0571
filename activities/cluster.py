"""Effects on a site's cluster: declare deployments, run a replica's workload and end it, close nodes.

Runs on the site's queue, with the site's credentials, which never leave the site. Every method is safe to run
twice. Writes carry uids; what is not ours is never touched; an empty answer removes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from temporalio import activity

from activities import (
    DEPLOYMENT,
    EVENT,
    MODEL_DEPLOYMENT,
    NODE,
    POD,
    SERVICE,
    Cluster,
    Object,
)
from activities.failures import failures_mapped
from sunfleet import manifests, names, objects
from sunfleet.errors import BadInput, Conflict, Fenced, NotYet, Unfit
from sunfleet.ledger import Hold
from sunfleet.messages import PodDigest, Reported, SurveyInput
from sunfleet.model import ModelSpec, SiteSpec
from sunfleet.pods import digest_pod
from sunfleet.reasons import Reason
from sunfleet.standing import WARNINGS
from sunfleet.survey import Survey as Survey
from sunfleet.survey import SurveyedPod as SurveyedPod

POLL = timedelta(milliseconds=500)
TRIES = 5
TAKE_BACK_TAINT = f"{names.GROUP}/take-back"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyDeployments:
    """Make a site's ModelDeployments of one fleet be exactly these models."""

    fleet: str
    revision: int
    site: SiteSpec
    models: tuple[ModelSpec, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    applied: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()  # names taken by another fleet or by people: left alone


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDeployment:
    namespace: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentRead:
    found: bool
    uid: str = ""
    generation: int = 0
    spec: ModelSpec | None = None
    replicas: int = 0  # the scale subresource: a floor for hot
    problem: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreateWorkload:
    site: SiteSpec
    model: ModelSpec
    hold: Hold
    owner: str  # the replica's workflow id
    directory: str  # the weights, relative to the node's cache path


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadRef:
    namespace: str
    name: str
    hold: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkProven:
    """Open or shut the readiness gate of one pod."""

    namespace: str
    pod: str
    uid: str
    proven: bool
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetireWorkload:
    namespace: str
    name: str
    hold: str
    grace_seconds: int | None = None  # None: the pod's own


@dataclass(frozen=True, slots=True, kw_only=True)
class EnsureImage:
    site: SiteSpec
    node: str
    image: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRef:
    node: str
    uid: str
    namespace: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForceRetire:
    """End every workload of ours on a node, now."""

    namespace: str
    node: str
    grace_seconds: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteStatus:
    """A deployment's status, and the reasons that became news since the last time."""

    namespace: str
    name: str
    uid: str
    facts: Reported
    served_name: str
    base_url: str
    now: datetime  # fleet time
    reasons: tuple[Reason, ...] = ()
    recent: tuple[Reason, ...] = ()


class ClusterActivities:
    """Everything that Sunfleet does to one site's cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    @activity.defn
    @failures_mapped
    async def apply_deployments(self, command: ApplyDeployments) -> Applied:
        """Apply each model, remove this fleet's others. What another fleet or a person owns is left alone."""
        site, fleet = command.site, command.fleet
        present = {o["metadata"]["name"]: o for o in (await self._cluster.list(MODEL_DEPLOYMENT, site.namespace)).items}
        applied, foreign = [], []
        for model in command.models:
            old = present.get(model.name)
            if old is not None and old["metadata"].get("labels", {}).get(names.FLEET) != fleet:
                foreign.append(model.name)
                continue
            body = objects.deployment_object(model, site, fleet, command.revision)
            await self._cluster.apply(MODEL_DEPLOYMENT, body, names.FLEET_MANAGER)
            applied.append(model.name)
        wanted = {m.name for m in command.models}
        removed = []
        for name, obj in sorted(present.items()):
            if obj["metadata"].get("labels", {}).get(names.FLEET) == fleet and name not in wanted:
                await self._cluster.delete(MODEL_DEPLOYMENT, name, site.namespace, uid=obj["metadata"]["uid"])
                removed.append(name)
        return Applied(applied=tuple(applied), removed=tuple(removed), foreign=tuple(foreign))

    @activity.defn
    @failures_mapped
    async def read_deployment(self, command: ReadDeployment) -> DeploymentRead:
        """The object as it is now; an unreadable spec is a problem in words, not an error."""
        obj = await self._cluster.get(MODEL_DEPLOYMENT, command.name, command.namespace)
        if obj is None or obj["metadata"].get("deletionTimestamp"):
            return DeploymentRead(found=False)
        meta = obj["metadata"]
        found = DeploymentRead(found=True, uid=meta["uid"], generation=int(meta.get("generation", 1)))
        try:
            spec = objects.read_deployment(obj)
        except BadInput as error:
            return DeploymentRead(found=True, uid=found.uid, generation=found.generation, problem=str(error))
        return DeploymentRead(
            found=True,
            uid=found.uid,
            generation=found.generation,
            spec=spec,
            replicas=int(obj.get("spec", {}).get("replicas") or 0),
        )

    @activity.defn
    @failures_mapped
    async def create_workload(self, command: CreateWorkload) -> str:
        """Apply the Service and the replica's workload; its uid. A workload of another generation is Fenced."""
        site, model, hold = command.site, command.model, command.hold
        await self._cluster.apply(SERVICE, manifests.service(model, site), names.MANAGER)
        replica = manifests.Replica(
            name=names.replica_name(model.name, hold.id),
            hold=hold.id,
            generation=hold.generation,
            node=hold.node,
            owner=command.owner,
            directory=command.directory,
        )
        body = manifests.workload(model, site, replica)
        old = await self._cluster.get(DEPLOYMENT, replica.name, site.namespace)
        if old is not None:
            generation = old["metadata"].get("labels", {}).get(names.GENERATION)
            if generation != str(hold.generation):
                raise Fenced(f"workload {replica.name} belongs to generation {generation}, not {hold.generation}")
            if old["metadata"].get("deletionTimestamp"):
                raise NotYet(f"workload {replica.name} is being deleted")
        made = await self._cluster.apply(DEPLOYMENT, body, names.MANAGER)
        return str(made["metadata"]["uid"])

    @activity.defn
    @failures_mapped
    async def observe_pods(self, command: WorkloadRef) -> tuple[PodDigest, ...]:
        """Every pod of the hold, by a quorum read, oldest first."""
        return tuple(digest_pod(p) for p in await self._pods(command.namespace, command.hold))

    @activity.defn
    @failures_mapped
    async def mark_proven(self, command: MarkProven) -> bool:
        """Set the proven gate of exactly this pod. False when it is gone or another one has its name."""
        pod = await self._cluster.get(POD, command.pod, command.namespace)
        if pod is None or pod["metadata"]["uid"] != command.uid:
            return False
        condition = {
            "type": names.PROVEN,
            "status": "True" if command.proven else "False",
            "reason": "Proven" if command.proven else "NotProven",
            "message": command.why,
            "lastTransitionTime": _now(),
        }
        body = {"metadata": {"uid": command.uid}, "status": {"conditions": [condition]}}
        try:
            await self._cluster.patch(POD, command.pod, body, command.namespace, subresource="status")
        except (Conflict, Unfit):
            again = await self._cluster.get(POD, command.pod, command.namespace)
            if again is not None and again["metadata"]["uid"] == command.uid:
                raise
            return False  # another pod has the name now
        return True

    @activity.defn
    @failures_mapped
    async def retire_workload(self, command: RetireWorkload) -> int:
        """Delete the workload by uid and wait until every pod of the hold is gone, by uid. The pods seen.

        Already gone is success. A grace shortens the pods' own: used at a deadline.
        """
        old = await self._cluster.get(DEPLOYMENT, command.name, command.namespace)
        if old is not None and old["metadata"].get("labels", {}).get(names.HOLD) == command.hold:
            await self._cluster.delete(DEPLOYMENT, command.name, command.namespace, uid=old["metadata"]["uid"])
        seen: set[str] = set()
        while True:
            pods = await self._pods(command.namespace, command.hold)
            if not pods and await self._cluster.get(DEPLOYMENT, command.name, command.namespace) is None:
                return len(seen)
            for pod in pods:
                meta = pod["metadata"]
                if meta["uid"] not in seen and command.grace_seconds is not None:
                    await self._cluster.delete(
                        POD,
                        meta["name"],
                        command.namespace,
                        uid=meta["uid"],
                        grace_seconds=command.grace_seconds,
                    )
                seen.add(meta["uid"])
            activity.heartbeat({"pods": len(pods)})
            await asyncio.sleep(POLL.total_seconds())

    @activity.defn
    @failures_mapped
    async def ensure_image(self, command: EnsureImage) -> bool:
        """Make the engine image present on a node by a pod that runs nothing. False when it was there."""
        name = f"pull-{names.digest(command.image)}-{names.slug(command.node, 40)}"
        namespace = command.site.namespace
        if await self._has_image(command.node, command.image):
            await self._delete_pod(name, namespace)
            return False
        body = manifests.prepull(command.image, command.node, namespace, name)
        with suppress(Conflict):  # an earlier attempt made it
            await self._cluster.create(POD, body)
        while True:
            pod = await self._cluster.get(POD, name, namespace)
            phase = pod.get("status", {}).get("phase") if pod else ""
            if phase == "Succeeded" or await self._has_image(command.node, command.image):
                await self._delete_pod(name, namespace)
                return True
            if phase == "Failed":
                await self._delete_pod(name, namespace)
                raise NotYet(f"the image pod on {command.node} failed: {_why(pod)}")
            if pod is not None and (reason := digest_pod(pod).reason) in (
                "InvalidImageName",
                "ErrImageNeverPull",
            ):
                await self._delete_pod(name, namespace)
                raise Unfit(f"image {command.image} cannot be pulled on {command.node}: {reason}")
            activity.heartbeat({"phase": phase})
            await asyncio.sleep(POLL.total_seconds())

    @activity.defn
    @failures_mapped
    async def close_node(self, command: NodeRef) -> bool:
        """Cordon a node and taint it as ours. False when that node is gone."""
        taint = {"key": TAKE_BACK_TAINT, "value": "closing", "effect": "NoSchedule"}
        return await self._change_node(command, lambda others: {"unschedulable": True, "taints": [*others, taint]})

    @activity.defn
    @failures_mapped
    async def open_node(self, command: NodeRef) -> bool:
        """Undo `close_node`. False when the node is gone; one that we did not close is left as it is."""
        node = await self._cluster.get(NODE, command.node)
        if node is None or not any(t.get("key") == TAKE_BACK_TAINT for t in node["spec"].get("taints") or []):
            return False
        return await self._change_node(command, lambda others: {"unschedulable": False, "taints": others})

    async def _change_node(self, command: NodeRef, spec: Callable[[list[Object]], Object]) -> bool:
        """Write a node's spec from the taints that are not ours.

        The list of taints is atomic in the API: it is written whole, under the version that was read.
        """
        for _ in range(TRIES):
            node = await self._cluster.get(NODE, command.node)
            if node is None or node["metadata"]["uid"] != command.uid:
                return False
            others = [t for t in node["spec"].get("taints") or [] if t.get("key") != TAKE_BACK_TAINT]
            body = {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": spec(others)}
            with suppress(Conflict):
                await self._cluster.patch(NODE, command.node, body)
                return True
        raise NotYet(f"node {command.node} changes faster than it can be written")

    @activity.defn
    @failures_mapped
    async def force_retire(self, command: ForceRetire) -> int:
        """End every workload of ours pinned to a node, with a short grace; wait until its pods are gone."""
        selector = f"{names.MANAGED_BY}={names.MANAGER},{names.HOLD}"
        ended = 0
        while True:
            pods = [
                p
                for p in (await self._cluster.list(POD, command.namespace, selector)).items
                if p.get("spec", {}).get("nodeName") == command.node
            ]
            if not pods:
                return ended
            for pod in pods:
                meta = pod["metadata"]
                workload = await self._workload_of(meta.get("labels", {}).get(names.HOLD, ""), command.namespace)
                if workload is not None:
                    owner = workload["metadata"]
                    await self._cluster.delete(DEPLOYMENT, owner["name"], command.namespace, uid=owner["uid"])
                    ended += 1
                await self._cluster.delete(
                    POD, meta["name"], command.namespace, uid=meta["uid"], grace_seconds=command.grace_seconds
                )
            activity.heartbeat({"pods": len(pods)})
            await asyncio.sleep(POLL.total_seconds())

    @activity.defn
    @failures_mapped
    async def write_status(self, command: WriteStatus) -> bool:
        """Write the status of exactly this object, and its news as Events. False when it is gone."""
        obj = await self._cluster.get(MODEL_DEPLOYMENT, command.name, command.namespace)
        if obj is None or obj["metadata"]["uid"] != command.uid:
            return False
        previous = obj.get("status", {}).get("conditions") or []
        status = objects.with_transitions(
            objects.status(
                command.facts,
                base_url=command.base_url,
                served_name=command.served_name,
                model=command.name,
                now=command.now,
                recent=command.recent,
                of=obj,
            ),
            previous,
            _now(),
        )
        if status != obj.get("status"):
            body = {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "metadata": {"name": command.name, "namespace": command.namespace},
                "status": status,
            }
            await self._cluster.apply(MODEL_DEPLOYMENT, body, names.MANAGER, subresource="status")
        for note in command.reasons:
            await self._post_event(obj, note)
        return True

    @activity.defn
    @failures_mapped
    async def survey(self, command: SurveyInput) -> Survey:
        """What stands at the site, of ours, by quorum reads."""
        ours = f"{names.MANAGED_BY}={names.MANAGER}"
        pods = (await self._cluster.list(POD, command.namespace, f"{ours},{names.HOLD}")).items
        workloads = (await self._cluster.list(DEPLOYMENT, command.namespace, ours)).items
        deployments = (await self._cluster.list(MODEL_DEPLOYMENT, command.namespace)).items
        nodes = (await self._cluster.list(NODE)).items
        return Survey(
            pods=tuple(_surveyed(p) for p in pods),
            workloads={w["metadata"]["name"]: w["metadata"]["labels"].get(names.HOLD, "") for w in workloads},
            deployments=tuple(sorted(d["metadata"]["name"] for d in deployments)),
            allocatable={
                n["metadata"]["name"]: {
                    r: int(q) for r, q in (n.get("status", {}).get("allocatable") or {}).items() if "/" in r
                }
                for n in nodes
            },
        )

    async def _pods(self, namespace: str, hold: str) -> list[Object]:
        pods = (await self._cluster.list(POD, namespace, f"{names.HOLD}={hold}")).items
        return sorted(pods, key=lambda p: (p["metadata"]["creationTimestamp"], p["metadata"]["uid"]))

    async def _workload_of(self, hold: str, namespace: str) -> Object | None:
        found = (await self._cluster.list(DEPLOYMENT, namespace, f"{names.HOLD}={hold}")).items
        return found[0] if found else None

    async def _has_image(self, node: str, image: str) -> bool:
        obj = await self._cluster.get(NODE, node)
        if obj is None:
            raise NotYet(f"node {node} is not there")
        images = obj.get("status", {}).get("images") or []
        return any(image in (i.get("names") or []) for i in images)

    async def _delete_pod(self, name: str, namespace: str) -> None:
        pod = await self._cluster.get(POD, name, namespace)
        if pod is not None:
            await self._cluster.delete(POD, name, namespace, uid=pod["metadata"]["uid"], grace_seconds=0)

    async def _post_event(self, obj: Object, note: Reason) -> None:
        meta = obj["metadata"]
        body = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "name": f"{names.slug(meta['name'], 40)}.{names.digest(meta['uid'] + note.id, 12)}",
                "namespace": meta["namespace"],
            },
            "involvedObject": {
                "apiVersion": obj["apiVersion"],
                "kind": obj["kind"],
                "name": meta["name"],
                "namespace": meta["namespace"],
                "uid": meta["uid"],
            },
            "reason": note.code,
            "message": note.message[:1000],
            "type": "Warning" if note.code in WARNINGS else "Normal",
            "source": {"component": "sunfleet"},
            "firstTimestamp": _now(),
            "lastTimestamp": _now(),
            "count": 1,
        }
        with suppress(Conflict):  # posted by an earlier attempt
            await self._cluster.create(EVENT, body)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _why(pod: Object | None) -> str:
    return (digest_pod(pod).message or digest_pod(pod).reason) if pod else "it is gone"


def _surveyed(pod: Object) -> SurveyedPod:
    digest = digest_pod(pod)
    meta = pod["metadata"]
    gpus: dict[str, int] = {}
    for container in pod.get("spec", {}).get("containers") or []:
        for resource, count in (container.get("resources", {}).get("limits") or {}).items():
            if "/" in resource:
                gpus[resource] = gpus.get(resource, 0) + int(count)
    return SurveyedPod(
        name=digest.name,
        uid=digest.uid,
        node=digest.node,
        hold=meta.get("labels", {}).get(names.HOLD, ""),
        owner=meta.get("annotations", {}).get(names.OWNER, ""),
        gpus=gpus,
        ready=digest.ready,
        proven=digest.proven,
        deleting=digest.deleting,
        phase=digest.phase,
    )
