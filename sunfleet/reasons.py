"""Why something is as it is: one shape for `why`, Events, conditions and the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

KEEP = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One fact with its cause. `id` is unique within its entity; `at` is fleet time, `code` is CamelCase."""

    id: str
    at: datetime
    actor: str
    code: str
    message: str
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """The last reasons, oldest first, and the number of the next one."""

    next: int = 1
    reasons: tuple[Reason, ...] = ()

    def add(self, at: datetime, actor: str, code: str, message: str, cause: str | None = None) -> Journal:
        """A journal with one more reason, equal repeats in a row kept once."""
        last = self.reasons[-1] if self.reasons else None
        if last and (last.actor, last.code, last.message, last.cause) == (actor, code, message, cause):
            return self
        reason = Reason(id=f"e-{self.next}", at=at, actor=actor, code=code, message=message, cause=cause)
        return Journal(next=self.next + 1, reasons=(*self.reasons, reason)[-KEEP:])
