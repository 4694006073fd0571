"""Effects on a node's weights; runs on the node's own queue."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from temporalio import activity

from activities import Snapshot, WeightStore
from activities.failures import failures_mapped
from sunfleet.errors import Unfit
from sunfleet.sizing import tp_problems

BEAT = timedelta(seconds=2)
STALL = timedelta(minutes=5)  # without a byte moved or verified, the heartbeat stops


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """`cache` is the site's cache path on every node."""

    source: str
    cache: str
    tensor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """`directory` is relative to the node's cache path."""

    directory: str
    bytes: int
    fetched: bool  # False when it was there already


class WeightActivities:
    """`store_at` gives the store of a cache path; one per path, so that fetches are shared."""

    def __init__(self, store_at: Callable[[str], WeightStore]) -> None:
        self._store_at = functools.cache(store_at)

    @activity.defn
    @failures_mapped
    async def stage_weights(self, command: StageWeights) -> Staged:
        """Fetch and verify a pinned snapshot; success when it is there already.

        Heartbeats follow progress: a transfer that hangs stops them, and the server tries again. Once its configuration
        is here, a model that no engine could split like this is Unfit, before GPUs and minutes are spent on it.
        """
        loop = asyncio.get_running_loop()
        moved = [loop.time(), 0, 0]

        def progress(done: int, total: int) -> None:
            moved[:] = [loop.time(), done, total]

        async def beat() -> None:
            while loop.time() - moved[0] < STALL.total_seconds():
                activity.heartbeat({"done": moved[1], "total": moved[2]})
                await asyncio.sleep(BEAT.total_seconds())

        beating = asyncio.create_task(beat())
        try:
            snapshot = await self._store_at(command.cache).stage(command.source, progress)
        finally:
            beating.cancel()
            with suppress(asyncio.CancelledError):
                await beating
        if problems := self._misfit(command, snapshot):
            raise Unfit(problems[0], hint="choose another parallel.tensor: no engine would start like this")
        return Staged(directory=snapshot.directory, bytes=snapshot.bytes, fetched=snapshot.fetched)

    def _misfit(self, command: StageWeights, snapshot: Snapshot) -> tuple[str, ...]:
        """Why the model cannot be split over so many GPUs."""
        return tp_problems(self._store_at(command.cache).config(snapshot), command.tensor)
