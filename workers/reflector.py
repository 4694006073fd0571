"""A local copy of one kind of object, kept by list and watch.

After a 410, a broken watch or an error the whole list is read again, and what vanished in between is found
by comparing. One empty answer where there were objects is not believed: it is asked for again before
anything is taken for gone, because an API server that is restoring itself can answer so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import timedelta

from activities import Cluster, Expired, Kind, Object
from sunfleet.errors import SunfleetError

log = logging.getLogger(__name__)
BACKOFF = timedelta(milliseconds=250)
BACKOFF_MOST = timedelta(seconds=15)
DOUBT = timedelta(seconds=2)  # between two looks at a list that became empty
DOUBTS = 5


class Reflector:
    """The objects of one kind by (namespace/)name, as last seen. `synced` once a whole list was read."""

    def __init__(self, cluster: Cluster, kind: Kind, namespace: str = "", selector: str = "") -> None:
        self._cluster, self._kind = cluster, kind
        self._namespace, self._selector = namespace, selector
        self._objects: dict[str, Object] = {}
        self._doubts = 0
        self.synced = False
        self.pause = BACKOFF  # before the next try; grows until a watch says something

    @property
    def objects(self) -> Mapping[str, Object]:
        return self._objects

    async def run(self, changed: Callable[[], None]) -> None:
        """Follow for ever; `changed` is called after every change, and once when first synced."""
        while True:
            try:
                version = await self._relist(changed)
                if version is None:
                    await asyncio.sleep(DOUBT.total_seconds())
                    continue
                while True:
                    version = await self._follow(version, changed)
            except Expired:
                log.info("the watch of %s expired", self._kind.plural)
            except SunfleetError as error:
                log.warning("the watch of %s failed: %s", self._kind.plural, error.message)
            await asyncio.sleep(self.pause.total_seconds())
            self.pause = min(self.pause * 2, BACKOFF_MOST)

    async def _relist(self, changed: Callable[[], None]) -> str | None:
        """Read everything; None while an empty answer is in doubt."""
        listing = await self._cluster.list(self._kind, self._namespace, self._selector)
        if not listing.items and len(self._objects) > 1 and self._doubts < DOUBTS:
            self._doubts += 1
            return None
        self._doubts = 0
        self._objects = {_key(o): o for o in listing.items}
        self.synced = True
        changed()
        return listing.resource_version

    async def _follow(self, version: str, changed: Callable[[], None]) -> str:
        """One watch to its end; the version to go on from."""
        watching = self._cluster.watch(self._kind, self._namespace, version, self._selector)
        async with aclosing(watching) as events:  # type: ignore[type-var]  # the port promises an iterator, ours are generators
            async for event in events:
                self.pause = BACKOFF
                version = str(event.object["metadata"]["resourceVersion"])
                if event.type == "BOOKMARK":
                    continue
                if event.type == "DELETED":
                    self._objects.pop(_key(event.object), None)
                else:
                    self._objects[_key(event.object)] = event.object
                changed()
        return version


def _key(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])
