"""What the Temporal client's errors mean to whoever asked: one of ours, with a hint. Nothing branches on a message."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from temporalio.client import (
    WorkflowFailureError,
    WorkflowQueryFailedError,
    WorkflowQueryRejectedError,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ActivityError, ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from sunfleet.errors import (
    AccessDenied,
    BadInput,
    Conflict,
    NotFound,
    Problem,
    Refused,
    SunfleetError,
    Throttled,
    Unreachable,
)

_BAD = ("BadInput", "ValidationError", "NotYetSupported")
_DENIED = (RPCStatusCode.PERMISSION_DENIED, RPCStatusCode.UNAUTHENTICATED)


@contextmanager
def as_ours(what: str, *, request_id: str = "") -> Iterator[None]:
    """Raise our errors for those of the client. `what` names the thing asked, such as `chat-8b at tokyo`.

    Errors: BadInput, Refused, Conflict, NotFound, AccessDenied, Throttled, Unreachable. With a `request_id`, no
    answer in time means *unknown*, and the error says how to find out.
    """
    try:
        yield
    except WorkflowUpdateFailedError as error:
        raise _refusal(error.cause, what) from error
    except (WorkflowQueryFailedError, WorkflowQueryRejectedError) as error:
        raise Refused(f"{what} could not say how it is: {error}") from error
    except WorkflowFailureError as error:
        raise _failure(error, what) from error
    except WorkflowUpdateRPCTimeoutOrCancelledError as error:
        raise unanswered(what, request_id) from error
    except RPCError as error:
        raise _rpc(error, what, request_id) from error


def _refusal(cause: BaseException | None, what: str) -> SunfleetError:
    """What a validator or handler said."""
    if not isinstance(cause, ApplicationError):
        return Refused(f"{what}: {cause}")
    problems = tuple(_problems(cause.details))
    if cause.type in _BAD:
        return BadInput(problems or (Problem(path=what, message=cause.message, code=str(cause.type)),))
    if problems:  # a refused change: the words are the problems'
        return Refused("\n".join(p.message for p in problems), hint=next((p.hint for p in problems if p.hint), ""))
    if cause.type == "Conflict":
        return Conflict(cause.message, hint="look at the newest revision first: sunfleet status")
    if cause.type == "NotFound":
        return NotFound(cause.message)
    return Refused(cause.message)


def _problems(details: Any) -> Iterator[Problem]:
    """The problems that a refusal carries: one list of rows."""
    for rows in details:
        for row in rows if isinstance(rows, list) else ():
            if isinstance(row, dict) and "message" in row:
                yield Problem(
                    path=str(row.get("path", "")),
                    message=str(row["message"]),
                    hint=str(row.get("hint", "")),
                    code=str(row.get("code", "Invalid")),
                )


def _failure(error: WorkflowFailureError, what: str) -> SunfleetError:
    """A bounded workflow that we waited for ended badly: what its activity met."""
    cause: BaseException | None = error.cause
    while isinstance(cause, ActivityError) and cause.cause is not None:
        cause = cause.cause
    return Unreachable(f"{what} could not be looked at: {cause or error}", hint="does the site's worker run?")


def unanswered(what: str, request_id: str) -> Unreachable:
    """No answer in time: for a question nothing, for a request the state is unknown."""
    if not request_id:
        return Unreachable(f"{what} did not answer in time", hint="do the workers run?")
    return Unreachable(
        f"{what} did not answer in time: whether it was done is unknown, and it may still be",
        hint=f"the same command again with --request-id {request_id} is answered, and not done twice",
    )


def _rpc(error: RPCError, what: str, request_id: str) -> SunfleetError:
    if error.status is RPCStatusCode.NOT_FOUND:
        return NotFound(f"{what} is not known")
    if error.status in _DENIED:
        return AccessDenied(
            f"the Temporal server refuses us: {error.status.name}", hint="check the API key and namespace"
        )
    if error.status is RPCStatusCode.RESOURCE_EXHAUSTED:
        return Throttled("the Temporal server is busy", retry_in=timedelta(seconds=1), hint="try again in a second")
    if error.status is RPCStatusCode.INVALID_ARGUMENT:
        return BadInput((Problem(path=what, message=error.message),))
    if error.status is RPCStatusCode.FAILED_PRECONDITION:  # nobody polls its queue
        return Unreachable(f"{what} cannot answer: no worker runs", hint="start one: sunfleet up, or sunfleet worker")
    if error.status in (RPCStatusCode.DEADLINE_EXCEEDED, RPCStatusCode.CANCELLED):
        return unanswered(what, request_id)
    return Unreachable(f"the Temporal server did not answer: {error.status.name}", hint="does it run? sunfleet up")
