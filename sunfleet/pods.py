"""What matters of a Kubernetes pod or node, read from its JSON. Pure.

`digest_pod` looks past the proven gate: `ready` is that every container is ready, which for vLLM means that
the port listens. Allocatable, never capacity or labels, gives sizes; a pod counts until it is terminal.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from sunfleet import names
from sunfleet.inventory import Devices, Inventory, Node
from sunfleet.messages import PodDigest

TERMINAL = ("Succeeded", "Failed")
PRODUCT_LABEL = "nvidia.com/gpu.product"
TOLERATED = ("nvidia.com/gpu",)  # what our pods tolerate: see sunfleet.manifests
Json = Mapping[str, Any]


def digest_pod(pod: Json) -> PodDigest:
    """The digest of one pod."""
    meta, status = pod["metadata"], pod.get("status") or {}
    conditions = {c["type"]: c for c in status.get("conditions") or []}
    containers = status.get("containerStatuses") or []
    reason, message = _reason(status, conditions, containers)
    phase = str(status.get("phase", ""))
    return PodDigest(
        name=meta["name"],
        uid=meta["uid"],
        ip=str(status.get("podIP", "")),
        node=str((pod.get("spec") or {}).get("nodeName", "")),
        phase=phase,
        scheduled=_true(conditions, "PodScheduled") or bool((pod.get("spec") or {}).get("nodeName")),
        ready=phase == "Running" and bool(containers) and all(c.get("ready") for c in containers),
        proven=_true(conditions, names.PROVEN),
        deleting=bool(meta.get("deletionTimestamp")),
        restarts=sum(int(c.get("restartCount", 0)) for c in containers),
        reason=reason,
        message=message[:500],
    )


def _true(conditions: Mapping[str, Json], kind: str) -> bool:
    return conditions.get(kind, {}).get("status") == "True"


def _reason(status: Json, conditions: Mapping[str, Json], containers: Iterable[Json]) -> tuple[str, str]:
    """The most telling reason: the pod's own, a waiting or last terminated container's, the scheduler's."""
    if status.get("reason"):
        return str(status["reason"]), str(status.get("message", ""))
    for container in containers:
        ended = (container.get("lastState") or {}).get("terminated") or {}
        now = container.get("state") or {}
        dead = now.get("terminated") or ended
        waiting = now.get("waiting") or {}
        if waiting.get("reason") and waiting["reason"] not in ("ContainerCreating", "PodInitializing"):
            return str(waiting["reason"]), str(dead.get("message") or waiting.get("message", ""))
        if dead.get("reason") and dead["reason"] != "Completed":
            return str(dead["reason"]), str(dead.get("message", ""))
    scheduled = conditions.get("PodScheduled", {})
    if scheduled.get("status") == "False":
        return str(scheduled.get("reason", "Unschedulable")), str(scheduled.get("message", ""))
    return "", ""


def inventory(nodes: Iterable[Json], pods: Iterable[Json]) -> Inventory:
    """Nodes with their extended resources; pods that are not ours and not terminal are foreign use."""
    foreign: dict[tuple[str, str], int] = {}
    for pod in pods:
        node = (pod.get("spec") or {}).get("nodeName")
        if not node or (pod.get("status") or {}).get("phase") in TERMINAL or _ours(pod):
            continue
        for resource, count in _devices_of(pod).items():
            foreign[node, resource] = foreign.get((node, resource), 0) + count
    found = tuple(sorted((_node(n, foreign) for n in nodes), key=lambda n: n.name))
    text = json.dumps([_row(n) for n in found], sort_keys=True)
    return Inventory(digest=hashlib.sha256(text.encode()).hexdigest()[:16], nodes=found)


def _ours(pod: Json) -> bool:
    labels = pod["metadata"].get("labels") or {}
    return labels.get(names.MANAGED_BY) == names.MANAGER and names.HOLD in labels


def _devices_of(pod: Json) -> dict[str, int]:
    found: dict[str, int] = {}
    for container in (pod.get("spec") or {}).get("containers") or []:
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource, count in limits.items():
            if "/" in resource:
                found[resource] = found.get(resource, 0) + int(count)
    return found


def _node(node: Json, foreign: Mapping[tuple[str, str], int]) -> Node:
    meta, spec, status = node["metadata"], node.get("spec") or {}, node.get("status") or {}
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in status.get("conditions") or [])
    repelled = any(
        t.get("effect") in ("NoSchedule", "NoExecute") and t.get("key") not in TOLERATED
        for t in spec.get("taints") or []
    )
    labels = meta.get("labels") or {}
    return Node(
        name=meta["name"],
        uid=meta["uid"],
        ready=ready,
        schedulable=not spec.get("unschedulable", False) and not repelled,
        devices=tuple(
            Devices(
                resource=resource,
                allocatable=int(count),
                foreign=foreign.get((meta["name"], resource), 0),
                product=labels.get(PRODUCT_LABEL, "") if resource.startswith("nvidia.com/") else "",
            )
            for resource, count in sorted((status.get("allocatable") or {}).items())
            if "/" in resource and str(count).isdigit()
        ),
    )


def _row(node: Node) -> list[Any]:
    devices = [[d.resource, d.allocatable, d.foreign, d.product] for d in node.devices]
    return [node.name, node.uid, node.ready, node.schedulable, devices]
