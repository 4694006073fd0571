"""The controllers and the scheduler: what a control plane does by itself with the objects it is given."""

from __future__ import annotations

import asyncio
import hashlib
import itertools
import time
from typing import Any

from sim.cluster.kinds import RESOURCES, Json, Refused, Resource
from sim.cluster.store import Event, Store, now

BY_PLURAL = {r.plural: r for r in RESOURCES}
PODS, NODES, SLICES, DEPLOYMENTS = (BY_PLURAL[p] for p in ("pods", "nodes", "endpointslices", "deployments"))
LEASE_GRACE = 50.0  # seconds without renewal until a node is Unknown
EVICT_AFTER = 300.0
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
LETTERS = "bcdfghjklmnpqrstvwxz2456789"


class Controllers:
    """Run until cancelled; every pass is level-triggered."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._wake = asyncio.Event()
        self._names = itertools.count()
        self._seen_lease: dict[str, tuple[str, float]] = {}
        self._unreachable: dict[str, float] = {}
        store.listeners.append(self._on_event)

    def _on_event(self, event: Event) -> None:
        if event.resource not in ("events", "secrets"):
            self._wake.set()

    async def run(self) -> None:
        while True:
            self.pass_once()
            self._wake.clear()
            try:
                await asyncio.wait_for(self._wake.wait(), 1.0)
            except TimeoutError:
                continue
            await asyncio.sleep(0.01)

    def pass_once(self) -> None:
        """One look at everything."""
        self._nodes()
        self._deployments()
        self._schedule()
        self._endpoints()

    # Nodes.

    def _nodes(self) -> None:
        """Leases make nodes live; silence makes them Unknown, by this server's own clock."""
        leases = {o["metadata"]["name"]: o for o in self._store.of("leases", "kube-node-lease")}
        for node in self._store.of("nodes"):
            name = node["metadata"]["name"]
            renewed = str((leases.get(name, {}).get("spec") or {}).get("renewTime", ""))
            if self._seen_lease.get(name, ("", 0.0))[0] != renewed or name not in self._seen_lease:
                self._seen_lease[name] = (renewed, time.monotonic())
            silent = time.monotonic() - self._seen_lease[name][1] > LEASE_GRACE
            ready = _condition(node, "Ready")
            if silent and ready.get("status") == "True":
                self._node_unknown(name)
            self._taint(node, silent, ready.get("status") == "True" and not silent)

    def _node_unknown(self, name: str) -> None:
        condition = {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
            "lastTransitionTime": now(),
        }
        self._patch(NODES, "", name, {"status": {"conditions": [condition]}}, status=True)

    def _taint(self, node: Json, silent: bool, ready: bool) -> None:
        name = node["metadata"]["name"]
        old = (node.get("spec") or {}).get("taints") or []
        taints = [t for t in old if t.get("key") not in (NOT_READY, UNREACHABLE)]
        if silent:
            taints += [{"key": UNREACHABLE, "effect": e} for e in ("NoSchedule", "NoExecute")]
            self._unreachable.setdefault(name, time.monotonic())
            if time.monotonic() - self._unreachable[name] > EVICT_AFTER:
                self._evict(name)
        else:
            self._unreachable.pop(name, None)
            if not ready:
                taints.append({"key": NOT_READY, "effect": "NoSchedule"})
        if taints != old:
            self._patch(NODES, "", name, {"spec": {"taints": taints}})

    def _evict(self, node: str) -> None:
        for pod in self._store.of("pods"):
            if (pod["spec"].get("nodeName") == node) and not pod["metadata"].get("deletionTimestamp"):
                meta = pod["metadata"]
                self._store.delete(PODS, meta["namespace"], meta["name"], {})

    # Deployments.

    def _deployments(self) -> None:
        pods = self._store.of("pods")
        for deployment in self._store.of("deployments"):
            meta = deployment["metadata"]
            if meta.get("deletionTimestamp"):
                continue
            own = [
                p for p in pods if any(r.get("uid") == meta["uid"] for r in p["metadata"].get("ownerReferences") or [])
            ]
            self._reap_failed(own)
            wanted = int(deployment["spec"].get("replicas", 1))
            current = [p for p in own if _phase(p) not in ("Failed", "Succeeded")]
            living = [p for p in current if not p["metadata"].get("deletionTimestamp")]
            recreate = (deployment["spec"].get("strategy") or {}).get("type") == "Recreate"
            blocked = recreate and len(living) < len(current)  # Recreate waits for the old pod to be gone
            for _ in range(0 if blocked else wanted - len(living)):
                self._make_pod(deployment)
            for pod in living[wanted:] if len(living) > wanted else []:
                self._store.delete(PODS, meta["namespace"], pod["metadata"]["name"], {})
            self._deployment_status(deployment, living)

    def _reap_failed(self, own: list[Json]) -> None:
        for pod in own:
            if _phase(pod) == "Failed" and not pod["metadata"].get("deletionTimestamp"):
                self._store.delete(
                    PODS, pod["metadata"]["namespace"], pod["metadata"]["name"], {"gracePeriodSeconds": 0}
                )

    def _make_pod(self, deployment: Json) -> None:
        meta = deployment["metadata"]
        template = deployment["spec"]["template"]
        digest = int(hashlib.sha256(str(template).encode()).hexdigest(), 16)
        unique = int(hashlib.sha256(f"{meta['uid']}/{next(self._names)}".encode()).hexdigest(), 16)
        owner = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "name": meta["name"],
            "uid": meta["uid"],
            "controller": True,
        }
        body: Json = {
            "metadata": dict(template["metadata"])
            | {"name": f"{meta['name']}-{_word(digest, 10)}-{_word(unique, 5)}", "ownerReferences": [owner]},
            "spec": dict(template["spec"]),
        }
        try:
            self._store.create(PODS, meta["namespace"], body)
        except Refused:
            return  # the namespace is on its way out

    def _deployment_status(self, deployment: Json, living: list[Json]) -> None:
        meta = deployment["metadata"]
        ready = sum(1 for p in living if _condition(p, "Ready").get("status") == "True")
        status = {
            "observedGeneration": meta["generation"],
            "replicas": len(living),
            "updatedReplicas": len(living),
            "readyReplicas": ready,
            "availableReplicas": ready,
        }
        if {k: (deployment.get("status") or {}).get(k) for k in status} != status:
            self._patch(DEPLOYMENTS, meta["namespace"], meta["name"], {"status": status}, status=True)

    # Scheduling.

    def _schedule(self) -> None:
        pods = self._store.of("pods")
        used: dict[tuple[str, str], int] = {}
        for pod in pods:
            node = pod["spec"].get("nodeName")
            if node and _phase(pod) not in ("Succeeded", "Failed"):
                for resource, count in devices(pod).items():
                    used[node, resource] = used.get((node, resource), 0) + count
        nodes = self._store.of("nodes")
        for pod in pods:
            if pod["spec"].get("nodeName") or pod["metadata"].get("deletionTimestamp"):
                continue
            why = {n["metadata"]["name"]: refuses(n, pod, used) for n in nodes}
            fitting = [n for n, reason in why.items() if not reason]
            if fitting:
                self._bind(pod, fitting[0])
                for resource, count in devices(pod).items():
                    used[fitting[0], resource] = used.get((fitting[0], resource), 0) + count
            else:
                self._unschedulable(pod, list(why.values()))

    def _bind(self, pod: Json, node: str) -> None:
        meta = pod["metadata"]
        self._patch(PODS, meta["namespace"], meta["name"], {"spec": {"nodeName": node}})
        condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": now()}
        body = {"status": {"conditions": [condition]}}
        self._patch(PODS, meta["namespace"], meta["name"], body, status=True)

    def _unschedulable(self, pod: Json, reasons: list[str]) -> None:
        counts = {r: reasons.count(r) for r in sorted(set(reasons))}
        said = ", ".join(f"{n} {r}" for r, n in counts.items())
        message = f"0/{len(reasons)} nodes are available: {said or 'no nodes available to schedule pods'}."
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        old = _condition(pod, "PodScheduled")
        if {k: old.get(k) for k in condition} != condition:
            meta = pod["metadata"]
            body = {"status": {"conditions": [condition | {"lastTransitionTime": now()}]}}
            self._patch(PODS, meta["namespace"], meta["name"], body, status=True)

    # Endpoints.

    def _endpoints(self) -> None:
        pods = self._store.of("pods")
        for service in self._store.of("services"):
            selector = service["spec"].get("selector")
            if not selector:
                continue
            meta = service["metadata"]
            chosen = [
                p
                for p in pods
                if p["metadata"]["namespace"] == meta["namespace"]
                and all((p["metadata"].get("labels") or {}).get(k) == v for k, v in selector.items())
                and (p.get("status") or {}).get("podIP")
                and _phase(p) == "Running"
            ]
            self._slice(service, chosen)
        services = {(s["metadata"]["namespace"], s["metadata"]["name"]) for s in self._store.of("services")}
        for piece in self._store.of("endpointslices"):
            meta = piece["metadata"]
            if (meta["namespace"], meta["labels"]["kubernetes.io/service-name"]) not in services:
                self._store.delete(SLICES, meta["namespace"], meta["name"], {})

    def _slice(self, service: Json, pods: list[Json]) -> None:
        meta = service["metadata"]
        name = f"{meta['name']}-{_word(int(hashlib.sha256(meta['uid'].encode()).hexdigest(), 16), 5)}"
        endpoints = [
            {
                "addresses": [p["status"]["podIP"]],
                "conditions": _endpoint_conditions(p),
                "nodeName": p["spec"].get("nodeName"),
                "targetRef": {
                    "kind": "Pod",
                    "name": p["metadata"]["name"],
                    "namespace": meta["namespace"],
                    "uid": p["metadata"]["uid"],
                },
            }
            for p in pods
        ]
        ports = [
            {"name": p.get("name", ""), "port": _target(p, pods), "protocol": "TCP"} for p in service["spec"]["ports"]
        ]
        body: Json = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/service-name": meta["name"]},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Service", "name": meta["name"], "uid": meta["uid"]}],
            },
            "addressType": "IPv4",
            "endpoints": endpoints,
            "ports": ports if pods else [],
        }
        old = self._store.objects.get(("endpointslices", meta["namespace"], name))
        if old is None:
            self._store.create(SLICES, meta["namespace"], body)
        elif (old.get("endpoints"), old.get("ports")) != (body["endpoints"], body["ports"]):
            change = {"endpoints": body["endpoints"], "ports": body["ports"]}
            self._store.patch(
                SLICES, meta["namespace"], name, change, strategic=False, status=False, manager="endpoints"
            )

    def _patch(self, resource: Resource, namespace: str, name: str, body: Json, *, status: bool = False) -> None:
        self._store.patch(resource, namespace, name, body, strategic=True, status=status, manager="controller")


def devices(pod: Json) -> dict[str, int]:
    """The extended resources that a pod's containers ask for."""
    found: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for resource, count in ((container.get("resources") or {}).get("limits") or {}).items():
            if "/" in resource:
                found[resource] = found.get(resource, 0) + int(count)
    return found


def refuses(node: Json, pod: Json, used: dict[tuple[str, str], int]) -> str:
    """Why the scheduler does not put the pod there, in kube-scheduler's words; "" when it may."""
    spec, name = node.get("spec") or {}, node["metadata"]["name"]
    if spec.get("unschedulable"):
        return "node(s) were unschedulable"
    for taint in spec.get("taints") or []:
        if taint.get("effect") in ("NoSchedule", "NoExecute") and not _tolerated(taint, pod):
            value = f": {taint['value']}" if taint.get("value") else ":"
            return f"node(s) had untolerated taint(s) {{{taint['key']}{value}}}"
    if not _selected(node, pod):
        return "node(s) didn't match Pod's node affinity/selector"
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    for resource, count in devices(pod).items():
        if used.get((name, resource), 0) + count > int(allocatable.get(resource, 0)):
            return f"Insufficient {resource}"
    return ""


def _tolerated(taint: Json, pod: Json) -> bool:
    for toleration in pod["spec"].get("tolerations") or []:
        if toleration.get("effect") not in (None, "", taint.get("effect")):
            continue
        if toleration.get("operator") == "Exists" and toleration.get("key") in (None, "", taint["key"]):
            return True
        if toleration.get("key") == taint["key"] and toleration.get("value", "") == taint.get("value", ""):
            return True
    return False


def _selected(node: Json, pod: Json) -> bool:
    labels = node["metadata"].get("labels") or {}
    if any(labels.get(k) != v for k, v in (pod["spec"].get("nodeSelector") or {}).items()):
        return False
    affinity = (pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not required:
        return True
    fields = {"metadata.name": node["metadata"]["name"]}
    return any(
        all(_holds(e, labels) for e in term.get("matchExpressions") or [])
        and all(_holds(e, fields) for e in term.get("matchFields") or [])
        for term in required["nodeSelectorTerms"]
    )


def _holds(expression: Json, values: dict[str, Any]) -> bool:
    given, wanted = values.get(expression["key"]), expression.get("values") or []
    operator = expression["operator"]
    if operator in ("In", "NotIn"):
        return bool((given in wanted) is (operator == "In"))
    return bool((given is not None) == (operator == "Exists"))


def _condition(obj: Json, kind: str) -> Json:
    found: Json = next((c for c in (obj.get("status") or {}).get("conditions") or [] if c["type"] == kind), {})
    return found


def _phase(pod: Json) -> str:
    return str((pod.get("status") or {}).get("phase", "Pending"))


def _endpoint_conditions(pod: Json) -> Json:
    ready = _condition(pod, "Ready").get("status") == "True"
    ending = bool(pod["metadata"].get("deletionTimestamp"))
    return {"ready": ready and not ending, "serving": ready, "terminating": ending}


def _target(port: Json, pods: list[Json]) -> int:
    target = port.get("targetPort", port["port"])
    if isinstance(target, int):
        return target
    for pod in pods:
        for container in pod["spec"]["containers"]:
            for given in container.get("ports") or []:
                if given.get("name") == target:
                    return int(given["containerPort"])
    return int(port["port"])


def _word(number: int, length: int) -> str:
    text = ""
    for _ in range(length):
        number, digit = divmod(number, len(LETTERS))
        text += LETTERS[digit]
    return text
