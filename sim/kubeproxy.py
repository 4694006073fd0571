"""The service proxy of a simulated node network: ready endpoints of each Service, written to the table.

Works against any API server, simulated or real: it reads Services and the EndpointSlices that controllers make.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from sim.apiclient import ApiClient, Mirror
from sim.network import Backend, NetworkTable

SERVICE_NAME = "kubernetes.io/service-name"


class KubeProxy:
    """One site's services, followed until cancelled."""

    def __init__(self, site: str, client: ApiClient, table: NetworkTable, namespace: str) -> None:
        self._site, self._table, self._namespace = site, table, namespace
        self._services = Mirror(client, "v1", "services", namespace)
        self._slices = Mirror(client, "discovery.k8s.io/v1", "endpointslices", namespace)
        self._changed = asyncio.Event()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._services.run(self._changed.set))
            tasks.create_task(self._slices.run(self._changed.set))
            tasks.create_task(self._keep_writing())

    async def _keep_writing(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            if self._services.synced and self._slices.synced:
                self.write()

    def write(self) -> None:
        """Write every service that there is, drop the others."""
        names = {s["metadata"]["name"] for s in self._services.objects.values()}
        for name in sorted(names):
            found = [
                s for s in self._slices.objects.values() if s["metadata"].get("labels", {}).get(SERVICE_NAME) == name
            ]
            backends = tuple(sorted((b for s in found for b in ready(s)), key=lambda b: (b.ip, b.port)))
            if backends != self._table.backends(self._site, self._namespace, name):
                self._table.set_service(self._site, self._namespace, name, backends)
        for namespace, name in self._table.services(self._site):
            if namespace == self._namespace and name not in names:
                self._table.drop_service(self._site, namespace, name)


def ready(piece: Mapping[str, Any]) -> list[Backend]:
    """The ready endpoints of a slice. An endpoint without a ready condition counts as ready, as the API says."""
    ports = [int(p["port"]) for p in piece.get("ports") or [] if p.get("port")]
    return [
        Backend(address, port)
        for endpoint in piece.get("endpoints") or []
        if (endpoint.get("conditions") or {}).get("ready", True)
        for address in endpoint.get("addresses") or []
        for port in ports
    ]
