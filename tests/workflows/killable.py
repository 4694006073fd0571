"""A worker process that kills itself at named points: `python -m tests.workflows.killable CONFIG POINTS FIRED ADDRESS`.

A point is (workflow, activity type, before or after its effect). Each fires once: a marker is written first.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import temporalio.client
from temporalio import activity
from temporalio.worker import ActivityInboundInterceptor, ExecuteActivityInput, Interceptor

from sim.network import MappedTransport, NetworkTable
from workers import roles, settings


class Killer(temporalio.client.Interceptor, Interceptor):
    """Ends this process by SIGKILL when a point is reached."""

    def __init__(self, points: Path, fired: Path) -> None:
        self.points: list[dict[str, str]] = json.loads(points.read_text())
        self.fired = fired

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Inbound(next, self)

    def reached(self, mode: str) -> None:
        """Die here, if this is a point that has not fired."""
        info = activity.info()
        for point in self.points:
            marker = self.fired / point["id"]
            here = point["workflow"] in (info.workflow_id or "") and point["type"] == info.activity_type
            if here and point["mode"] == mode and not marker.exists():
                marker.write_text("")
                os.kill(os.getpid(), signal.SIGKILL)


class _Inbound(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, killer: Killer) -> None:
        super().__init__(next)
        self._killer = killer

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        self._killer.reached("before")
        result = await super().execute_activity(input)
        self._killer.reached("after")
        return result


async def main(config: Path, points: Path, fired: Path, address: str) -> None:
    found = settings.read(config)
    found = found.model_copy(update={"temporal": settings.TemporalSettings(address=address)})
    client = await roles.connect(found, interceptors=[Killer(points, fired)])
    table = NetworkTable(Path(found.network))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await roles.run_all(client, found, lambda: MappedTransport(table), stop)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4]))
