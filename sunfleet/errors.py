"""Every error that Sunfleet raises on purpose, and whether trying again can help.

    SunfleetError
    ├── BadInput            what a person wrote cannot be meant: every problem at once, with its place
    ├── Refused             a well-formed request that the present state does not allow
    │   ├── Conflict        somebody else changed it first: expected revision, request id, uid
    │   └── NotFound        the thing named does not exist
    ├── Permanent           the world said no, and will say no again
    │   ├── AccessDenied    401, 403, gated: a credential is missing or refused
    │   ├── Missing         a revision, file, secret or node that is not there
    │   ├── Corrupt         bytes that are not what the manifest promised
    │   ├── NoSpace         a disk is too small, or full
    │   ├── Unfit           the engine can never run like this: wrong TP, out of memory, wrong name
    │   └── Fenced          a newer generation owns the place
    └── Transient           the world is busy, away or slow: try again after `retry_in`
        ├── Unreachable     no answer
        ├── Throttled       429 or 503 with a hint of when
        └── NotYet          works as meant, and needs more time

Permanent or Transient is decided where the fact is known: in the client. Nobody branches on a message.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta


class SunfleetError(Exception):
    """The root. `code` is a stable CamelCase word for machines, `hint` says what to try."""

    code = "Error"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing wrong with something a person wrote, and where. Lines count from 1; 0 is unknown."""

    path: str
    message: str
    hint: str = ""
    file: str = ""
    line: int = 0
    code: str = "Invalid"

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}: " if self.file and self.line else f"{self.file}: " if self.file else ""
        tail = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{place}{self.path}: {self.message}{tail}"


class BadInput(SunfleetError):
    """What a person wrote cannot be meant. Carries every problem, not the first."""

    code = "BadInput"

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        self.problems = problems
        super().__init__("\n".join(str(p) for p in problems))


class Refused(SunfleetError):
    """A well-formed request that the present state does not allow."""

    code = "Refused"


class Conflict(Refused):
    """Somebody else changed it first."""

    code = "Conflict"


class NotFound(Refused):
    """The thing named does not exist."""

    code = "NotFound"


class Permanent(SunfleetError):
    """The world said no, and will say no again."""

    code = "Permanent"


class AccessDenied(Permanent):
    """A credential is missing or refused. The message never contains it."""

    code = "AccessDenied"


class Missing(Permanent):
    """A revision, file, secret or node that is not there."""

    code = "Missing"


class Corrupt(Permanent):
    """Bytes that are not what the manifest promised."""

    code = "Corrupt"


class NoSpace(Permanent):
    """A disk is too small, or full."""

    code = "NoSpace"


class Unfit(Permanent):
    """The engine can never run like this."""

    code = "Unfit"


class Fenced(Permanent):
    """A newer generation owns the place: stop, and touch nothing."""

    code = "Fenced"


class Transient(SunfleetError):
    """Try again, not before `retry_in` (None: the caller's own back-off)."""

    code = "Transient"

    def __init__(self, message: str, *, hint: str = "", retry_in: timedelta | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_in = retry_in


class Unreachable(Transient):
    """No answer."""

    code = "Unreachable"


class Throttled(Transient):
    """Busy, with a hint of when to come back."""

    code = "Throttled"


class NotYet(Transient):
    """Works as meant, and needs more time."""

    code = "NotYet"
