"""The Temporal client as the `Entities` port: signals to entities, started on the way where needed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities import Signal
from sunfleet.errors import Throttled, Unreachable

AT_ONCE = 16
PATIENCE = timedelta(seconds=10)
_BUSY = (RPCStatusCode.RESOURCE_EXHAUSTED,)


class TemporalEntities:
    """At most `AT_ONCE` calls in flight. Errors: Throttled, Unreachable."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._slots = asyncio.Semaphore(AT_ONCE)

    async def signal_with_start(self, signals: Sequence[Signal]) -> None:
        await asyncio.gather(*(self._one(s) for s in signals))

    async def _one(self, signal: Signal) -> None:
        async with self._slots:
            try:
                await self._client.start_workflow(
                    signal.workflow,
                    signal.start,
                    id=signal.id,
                    task_queue=signal.queue,
                    start_signal=signal.signal,
                    start_signal_args=[signal.payload],
                    rpc_timeout=PATIENCE,
                )
            except RPCError as error:
                raise _ours(error) from error

    async def signal(self, id: str, signal: str, payload: Any) -> bool:
        async with self._slots:
            try:
                await self._client.get_workflow_handle(id).signal(signal, payload, rpc_timeout=PATIENCE)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return False
                raise _ours(error) from error
        return True


def _ours(error: RPCError) -> Throttled | Unreachable:
    if error.status in _BUSY:
        return Throttled("the Temporal server is busy", retry_in=timedelta(seconds=1))
    return Unreachable(f"the Temporal server did not answer: {error.status.name}")
