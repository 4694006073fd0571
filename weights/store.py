"""A node's weights: one folder per pinned source, and a marker that tells the truth.

    <root>/models/<slug>/            the snapshot, complete
    <root>/models/<slug>/.sunfleet-ready   written last: every file is there, with its size and digest
    <root>/staging/<slug>.<pid>.<n>/       one fetch under way; removed when nobody works on it any more

A fetch writes into a folder of its own, verifies every byte, and moves it into place with one rename. So locks
are only a hint that saves work: a second fetch of the same source, from another process, ends in the same bytes.
"""

from __future__ import annotations

import asyncio
import errno
import fcntl
import json
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sunfleet import names
from sunfleet.errors import BadInput, Corrupt, Missing, NoSpace, Problem
from sunfleet.snapshots import Progress, Snapshot, StagedFile
from weights.hub import Hub
from weights.manifest import Manifest, RemoteFile, verify

MARKER = ".sunfleet-ready"
MARGIN = 1 << 28  # free bytes that stay free
GLANCE = 2.0  # seconds between two looks at how far a fetch is


class NodeStore:
    """The store below `root`; `root` is the node's cache path as the node itself sees it."""

    def __init__(
        self,
        root: Path,
        *,
        endpoint: str | None = None,
        token_file: Path | None = None,
        budget: int | None = None,
        hub: Hub | None = None,
    ) -> None:
        self._models, self._staging = root / "models", root / "staging"
        self._hub = hub or Hub(endpoint, token_file)
        self._budget = budget
        self._flights: dict[str, asyncio.Task[Snapshot]] = {}
        self._watchers: dict[str, list[Progress]] = {}
        self._totals: dict[str, int] = {}
        self._count = 0

    async def staged(self, source: str) -> Snapshot | None:
        """The snapshot behind a marker. The marker is believed: it is written after everything was verified."""
        return await asyncio.to_thread(self._ready, source)

    def config(self, snapshot: Snapshot) -> dict[str, Any]:
        """What the model's config.json says. Errors: Corrupt when it is no JSON object."""
        try:
            found = json.loads((self._models.parent / snapshot.directory / "config.json").read_text())
        except (OSError, ValueError):
            raise Corrupt("config.json cannot be read") from None
        if not isinstance(found, dict):
            raise Corrupt("config.json is no object")
        return found

    async def stage(self, source: str, progress: Progress) -> Snapshot:
        """Fetch and verify once, however many ask; everyone's `progress` hears of it."""
        if (found := await self.staged(source)) is not None:
            return found
        flight = self._flights.get(source)
        if flight is None or flight.done():
            flight = self._flights[source] = asyncio.create_task(self._fly(source))
        watchers = self._watchers.setdefault(source, [])
        watchers.append(progress)
        try:
            return await asyncio.shield(flight)
        finally:
            watchers.remove(progress)
            if not watchers and not flight.done():
                flight.cancel()  # the last one who waited left
                with suppress(asyncio.CancelledError, Exception):
                    await flight

    async def _fly(self, source: str) -> Snapshot:
        stop = threading.Event()
        work = asyncio.get_running_loop().run_in_executor(None, self._fetch, source, stop)
        seen = 0
        try:
            while not work.done():
                await asyncio.wait([work], timeout=GLANCE)
                if (on_disk := await asyncio.to_thread(self._on_disk, source)) != seen:
                    seen = on_disk
                    self._tell(source, seen, self._totals.get(source, 0))
            return work.result()
        except asyncio.CancelledError:
            stop.set()
            with suppress(Exception):
                await work
            raise

    # In a thread.

    def _ready(self, source: str) -> Snapshot | None:
        folder = self._folder(source)
        try:
            row = json.loads((folder / MARKER).read_text())
        except (OSError, ValueError):
            return None
        if row.get("source") != source:
            return None
        return Snapshot(
            directory=str(folder.relative_to(self._models.parent)),
            bytes=int(row["bytes"]),
            files=tuple(StagedFile(**f) for f in row["files"]),
            fetched=False,
        )

    def _folder(self, source: str) -> Path:
        return self._models / names.slug(source)

    def _fetch(self, source: str, stop: threading.Event) -> Snapshot:
        repo, revision = _split(source)
        self._models.mkdir(parents=True, exist_ok=True)
        self._staging.mkdir(parents=True, exist_ok=True)
        self._reap()
        with _hint(self._staging / f"{names.slug(source)}.lock", stop):
            if (found := self._ready(source)) is not None:
                return found  # another process was faster
            work = self._work_folder(source)
            try:
                return self._into(work, source, repo, revision, stop)
            except OSError as error:
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    raise NoSpace(f"the disk is full while staging {source}") from error
                raise
            finally:
                shutil.rmtree(work, ignore_errors=True)

    def _into(self, work: Path, source: str, repo: str, revision: str, stop: threading.Event) -> Snapshot:
        target = work / "files"
        manifest = self._hub.manifest(source, repo, revision, target)
        self._preflight(manifest)
        self._totals[source] = manifest.bytes
        files = []
        for file in manifest.files:
            _check(stop, source)
            files.append(self._one(file, source, repo, revision, target))
        shutil.rmtree(target / ".cache", ignore_errors=True)
        _check(stop, source)
        return self._publish(target, manifest, tuple(files))

    def _one(self, file: RemoteFile, source: str, repo: str, revision: str, target: Path) -> StagedFile:
        """Fetch and verify one file. Wrong bytes are fetched again, that file alone, once."""
        for last in (False, True):
            path = self._hub.fetch(source, repo, revision, file.path, target)
            if not path.resolve().is_relative_to(target.resolve()):
                raise Corrupt(f"{file.path} landed outside its folder")
            try:
                return StagedFile(path=file.path, size=file.size, sha256=verify(file, path))
            except Corrupt:
                path.unlink(missing_ok=True)
                if last:
                    raise
        raise AssertionError("unreachable")

    def _publish(self, target: Path, manifest: Manifest, files: tuple[StagedFile, ...]) -> Snapshot:
        """Into place with one rename, then the marker: what it says is so."""
        folder = self._folder(manifest.source)
        row: dict[str, Any] = {
            "source": manifest.source,
            "manifest": manifest.digest,
            "bytes": manifest.bytes,
            "files": [asdict(f) for f in files],
        }
        if folder.exists():
            if self._ready(manifest.source) is not None:
                return Snapshot(directory=self._relative(folder), bytes=manifest.bytes, files=files, fetched=False)
            shutil.rmtree(folder)  # a folder without a marker promises nothing
        _sync(target)
        target.rename(folder)
        temporary = folder / f"{MARKER}.new"
        with temporary.open("w") as out:
            json.dump(row, out)
            out.flush()
            os.fsync(out.fileno())
        temporary.rename(folder / MARKER)
        return Snapshot(directory=self._relative(folder), bytes=manifest.bytes, files=files)

    def _relative(self, folder: Path) -> str:
        return str(folder.relative_to(self._models.parent))

    def _preflight(self, manifest: Manifest) -> None:
        """Before the first byte: is there room on the disk, and in the budget?"""
        free = shutil.disk_usage(self._staging).free
        if manifest.bytes + MARGIN > free:
            raise NoSpace(f"{manifest.source} needs {manifest.bytes:,} bytes, the disk has {free:,} free")
        if self._budget is not None and (used := self._used()) + manifest.bytes > self._budget:
            raise NoSpace(
                f"{manifest.source} needs {manifest.bytes:,} bytes, {used:,} of {self._budget:,} are used",
                hint="raise cache.budget, or remove models from the node",
            )

    def _used(self) -> int:
        found = 0
        for marker in self._models.glob(f"*/{MARKER}"):
            with suppress(OSError, ValueError, KeyError):
                found += int(json.loads(marker.read_text())["bytes"])
        return found

    def _work_folder(self, source: str) -> Path:
        self._count += 1
        folder = self._staging / f"{names.slug(source)}.{os.getpid()}.{self._count}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        return folder

    def _reap(self) -> None:
        """Remove what fetches of dead processes left."""
        for folder in self._staging.iterdir():
            parts = folder.name.split(".")
            if folder.is_dir() and len(parts) == 3 and parts[1].isdigit() and not _runs(int(parts[1])):
                shutil.rmtree(folder, ignore_errors=True)

    def _on_disk(self, source: str) -> int:
        """Bytes that this process's fetch of a source has written so far."""
        found = 0
        for folder in self._staging.glob(f"{names.slug(source)}.{os.getpid()}.*"):
            for path in folder.rglob("*"):
                with suppress(OSError):
                    found += path.stat().st_size if path.is_file() else 0
        return found

    def _tell(self, source: str, done: int, total: int) -> None:
        for progress in list(self._watchers.get(source, [])):
            progress(done, total)


def _split(source: str) -> tuple[str, str]:
    """`hf://<repo>@<40 hex>`. Errors: BadInput."""
    scheme, _, rest = source.partition("://")
    repo, _, revision = rest.partition("@")
    if scheme != "hf" or not repo or len(revision) != 40:
        raise BadInput((Problem(path="source", message=f"{source!r} is no pinned hf:// source"),))
    return repo, revision


def _check(stop: threading.Event, source: str) -> None:
    if stop.is_set():
        raise Missing(f"staging {source} was cancelled")


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _hint(path: Path, stop: threading.Event) -> Iterator[None]:
    """Wait while another process of this node fetches the same. File systems without locks go on without."""
    with path.open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if stop.wait(0.2):
                    raise Missing("staging was cancelled while another process fetched") from None
                continue
            except OSError:
                pass  # ENOSYS and the like: the rename keeps it right
            break
        yield


def _sync(folder: Path) -> None:
    """Everything on disk before the rename says so."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
