"""Child processes that are ended by their own id: started in a session of their own, waited for, never guessed."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from contextlib import closing, suppress
from pathlib import Path


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def started_at(pid: int) -> str:
    """The kernel's start time of a process, "" when there is none: pids are reused, (pid, start) are not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def alive(pid: int, start: str = "") -> bool:
    """Whether that very process runs; a zombie does not."""
    now = started_at(pid)
    return bool(now) and (not start or now == start)


def send(pid: int, number: signal.Signals, *, group: bool = True) -> None:
    """Signal a process that we started, with its group; one that is gone is fine."""
    with suppress(ProcessLookupError, PermissionError):
        if group:
            os.killpg(pid, number)
        else:
            os.kill(pid, number)


async def gone(pid: int, start: str, within: float) -> bool:
    """Wait until the process is gone, at most `within` real seconds."""
    deadline = asyncio.get_running_loop().time() + within
    while alive(pid, start):
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)  # noqa: ASYNC222  # WNOHANG: it does not block
        if asyncio.get_running_loop().time() >= deadline:
            return not alive(pid, start)
        await asyncio.sleep(0.02)
    return True
