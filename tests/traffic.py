"""What our Kubernetes client says over a test run, and what of it the contract suite holds to the real API server.

Every client notes its distinct (verb, kind, options) in the file that `SUNFLEET_RECORD_KUBERNETES` names, also in the
processes that tests start. The contract suite's real half writes to a file of its own; what is only in the other one
was relied on without being held to anything.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from activities.clients.kubernetes import RECORD

__all__ = ["RECORD", "Traffic"]


@dataclass(frozen=True, slots=True)
class Traffic:
    """The two files of a test session."""

    folder: Path

    @property
    def everywhere(self) -> Path:
        return self.folder / "everywhere.jsonl"

    @property
    def contract(self) -> Path:
        return self.folder / "contract.jsonl"

    def seen(self) -> set[str]:
        return _rows(self.everywhere)

    def held(self) -> set[str]:
        return _rows(self.contract)

    def summary(self) -> tuple[str, bool]:
        """A line for the end of the run, and whether all is well. Needs both halves to have run."""
        seen, held = self.seen(), self.held()
        if not held or not seen:
            return "Kubernetes traffic: not compared, as the contract suite's real half or the rest did not run", True
        if missing := seen - held:
            return f"Kubernetes traffic: NOT in the contract suite: {'; '.join(sorted(missing))}", False
        return f"Kubernetes traffic: {len(seen)} distinct (verb, kind, options), all in the contract suite", True


def _rows(file: Path) -> set[str]:
    found = set()
    for line in file.read_text().splitlines() if file.exists() else ():
        verb, kind, options = json.loads(line)
        found.add(" ".join([verb, kind, *options]))
    return found
