"""Nodes: what they are, how they are registered, and that they live."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from sim.apiclient import STRATEGIC, ApiClient, ApiError, Json, path_of

LEASES = "kube-node-lease"
LEASE_SECONDS = 40
RENEW_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSpec:
    """A node with devices. `disk` is its own root directory on this machine."""

    name: str
    resources: Mapping[str, int] = field(default_factory=dict)  # extended resource → count
    product: str = "NVIDIA-H200"
    cpu: int = 192
    memory: str = "2Ti"
    labels: Mapping[str, str] = field(default_factory=dict)


class Node:
    """One registered node and the images on it."""

    def __init__(self, client: ApiClient, spec: NodeSpec, disk: Path) -> None:
        self._client, self.spec, self.disk = client, spec, disk
        self._images_file = disk / ".images.json"
        self.dead = False
        disk.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def images(self) -> list[str]:
        try:
            found = json.loads(self._images_file.read_text())
        except (OSError, ValueError):
            return []
        return [str(i) for i in found]

    def has(self, image: str) -> bool:
        return image in self.images

    async def pulled(self, image: str) -> None:
        """The image is on the node, and its status says so."""
        if not self.has(image):
            self._images_file.write_text(json.dumps([*self.images, image]))
            await self.report()

    async def register(self) -> None:
        """Create the node when it is not there, then report its status."""
        body: Json = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": self.name, "labels": self._labels()},
            "spec": {"providerID": f"sim://{self.name}"},
        }
        try:
            await self._client.call("POST", path_of("v1", "nodes"), body)
        except ApiError as error:
            if error.code != 409:
                raise
        await self.renew()
        await self.report()

    def _labels(self) -> dict[str, str]:
        gpus = {"nvidia.com/gpu.present": "true", "nvidia.com/gpu.product": self.spec.product}
        return (
            {"kubernetes.io/hostname": self.name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
            | (gpus if self.spec.resources else {})
            | dict(self.spec.labels)
        )

    async def report(self) -> None:
        """Write the whole status: sizes, conditions, images."""
        now = _now()
        sizes = {"cpu": str(self.spec.cpu), "memory": self.spec.memory, "pods": "250", "ephemeral-storage": "4Ti"}
        sizes |= {k: str(v) for k, v in self.spec.resources.items()}
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "the virtual kubelet is ready",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        status: Json = {
            "capacity": sizes,
            "allocatable": sizes,
            "conditions": [ready],
            "nodeInfo": _info(),
            "images": [{"names": [i], "sizeBytes": 1} for i in self.images],
        }
        await self._client.call(
            "PATCH", path_of("v1", "nodes", "", self.name, "status"), {"status": status}, content=STRATEGIC
        )

    async def renew(self) -> None:
        """Renew the node's lease: the sign of life that the control plane believes."""
        lease: Json = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.name, "namespace": LEASES},
            "spec": {
                "holderIdentity": self.name,
                "leaseDurationSeconds": LEASE_SECONDS,
                "renewTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            },
        }
        version = "coordination.k8s.io/v1"
        try:
            await self._client.call(
                "PATCH", path_of(version, "leases", LEASES, self.name), {"spec": lease["spec"]}, content=STRATEGIC
            )
        except ApiError as error:
            if error.code != 404:
                raise
            await self._client.call("POST", path_of(version, "leases", LEASES), lease)


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _info() -> Json:
    return {
        "architecture": "amd64",
        "operatingSystem": "linux",
        "kubeletVersion": "v1.34.4",
        "kubeProxyVersion": "",
        "containerRuntimeVersion": "sim://1",
        "kernelVersion": "sim",
        "osImage": "sim",
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
    }
