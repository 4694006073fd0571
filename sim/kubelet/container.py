"""Containers: a local process that outlives this one, or an engine inside this process."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from sim.engine.options import parse
from sim.engine.server import SimEngine
from sim.processes import alive, gone, send, started_at

MESSAGE_BYTES = 2048


@dataclass(frozen=True, slots=True)
class Ended:
    """How a container ended; `message` is the end of its log (FallbackToLogsOnError)."""

    code: int
    message: str = ""


class Container(Protocol):
    """A started container."""

    async def wait(self) -> Ended: ...

    async def stop(self, grace: float) -> None:
        """SIGTERM, then SIGKILL after `grace` seconds; returns when it is gone."""

    def kill(self) -> None: ...


class Process:
    """A local process in a session of its own. Its exit code is kept in a file, so that a kubelet that comes back
    learns how it ended."""

    def __init__(self, folder: Path, pid: int, start: str) -> None:
        self._folder, self.pid, self._start = folder, pid, start

    @classmethod
    def spawn(cls, folder: Path, argv: Sequence[str], env: Mapping[str, str]) -> Process:
        """Start; a wrapping shell writes the exit code. The record on disk comes first."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "exit").unlink(missing_ok=True)
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", _WRAPPER, str(folder / "exit"), *argv],
                env=dict(env),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        found = cls(folder, process.pid, started_at(process.pid))
        (folder / "process.json").write_text(json.dumps({"pid": found.pid, "start": found._start}))
        return found

    @classmethod
    def adopt(cls, folder: Path) -> Process | None:
        """The process that an earlier life started here, if it still runs or left its exit code."""
        try:
            row = json.loads((folder / "process.json").read_text())
        except (OSError, ValueError):
            return None
        return cls(folder, int(row["pid"]), str(row["start"]))

    async def wait(self) -> Ended:
        while alive(self.pid, self._start):
            _reap(self.pid)
            await asyncio.sleep(0.05)
        try:
            code = int((self._folder / "exit").read_text() or 137)
        except (OSError, ValueError):
            code = 137  # killed before it could say
        log = self._folder / "log"
        said = log.read_bytes()[-MESSAGE_BYTES:].decode(errors="replace") if code and log.exists() else ""
        return Ended(code, said)

    async def stop(self, grace: float) -> None:
        send(self.pid, signal.SIGTERM)
        if not await gone(self.pid, self._start, grace):
            self.kill()
            await gone(self.pid, self._start, 10)

    def kill(self) -> None:
        if alive(self.pid, self._start):
            send(self.pid, signal.SIGKILL)


# The shell stays to write the exit code; the group's SIGTERM reaches it too, so it ignores that and waits.
_WRAPPER = 'trap "" TERM; out="$0"; (trap - TERM; exec "$@") & wait $!; code=$?; echo $code > "$out"; exit $code'


def _reap(pid: int) -> None:
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return


class InProcess:
    """A simulated engine as a task of this process: hundreds fit where processes would not."""

    def __init__(self, argv: Sequence[str], env: Mapping[str, str]) -> None:
        self._stop = asyncio.Event()
        self.engine = SimEngine(parse(argv, env))
        self._task = asyncio.create_task(self._serve())

    async def _serve(self) -> Ended:
        try:
            await self.engine.serve(self._stop)
        except SystemExit as error:
            return Ended(1, str(error))
        return Ended(0)

    async def wait(self) -> Ended:
        await asyncio.wait([self._task])
        return Ended(137, "killed") if self._task.cancelled() else self._task.result()

    async def stop(self, grace: float) -> None:
        self._stop.set()
        done, _ = await asyncio.wait([self._task], timeout=grace)
        if not done:
            self.kill()

    def kill(self) -> None:
        self._task.cancel()
