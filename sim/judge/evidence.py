"""The logs, read line by line: what the gateway answered to users, and what each engine did."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """One user's request at the gateway. `at` is real time, when the answer was complete."""

    at: datetime
    region: str
    model: str
    status: int
    backend: str
    ms: float
    tokens: int
    error: str

    @property
    def began(self) -> float:
        """POSIX seconds of the arrival."""
        return self.at.timestamp() - self.ms / 1000

    @property
    def right(self) -> bool:
        """A 200 that says something: an empty answer is a failure, whatever its status."""
        return self.status == 200 and not self.error and self.tokens != 0


@dataclass(frozen=True, slots=True)
class EngineLine:
    """One line of an engine's log."""

    at: datetime
    event: str
    pod: str
    site: str
    model: str
    gpus: int
    path: str
    status: int
    user_agent: str
    ms: float


def answers(file: Path) -> list[Answer]:
    """The gateway's access log; a line cut by a kill is left out."""
    return [
        Answer(
            at=_time(r["time"]),
            region=r["region"],
            model=r["model"],
            status=int(r["status"]),
            backend=r.get("backend", ""),
            ms=float(r.get("ms", 0)),
            tokens=int(r.get("tokens", -1)),
            error=r.get("error", ""),
        )
        for r in _rows(file)
    ]


def engines(folder: Path) -> list[EngineLine]:
    """Every engine's log, in time order."""
    found = [
        EngineLine(
            at=_time(r["time"]),
            event=r["event"],
            pod=r["pod"],
            site=r["site"],
            model=r["model"],
            gpus=int(r.get("gpus", 0)),
            path=r.get("path", ""),
            status=int(r.get("status", 0)),
            user_agent=r.get("user_agent", ""),
            ms=float(r.get("ms", 0)),
        )
        for file in sorted(folder.glob("*.jsonl"))
        for r in _rows(file)
    ]
    return sorted(found, key=lambda e: e.at)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    if not file.exists():
        return
    for line in file.read_text().splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            continue
        if isinstance(row, dict):
            yield row


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)
