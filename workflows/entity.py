"""What every entity does alike: tell others, remember answered requests, and roll over in time."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import ApplicationError

with workflow.unsafe.imports_passed_through():
    from pydantic import TypeAdapter

    from sunfleet.messages import Remembered, Request

T = TypeVar("T")
ANSWERS = 300
ANSWER_LIFE = timedelta(hours=24)  # of fleet time, when a request names no `not_after`
UPDATES = 500


def required(given: T | None, what: str) -> T:
    """The input, or a failure that ends the workflow at once: started by hand without one."""
    if given is None:
        raise ApplicationError(f"{what} is missing: entities are started by Sunfleet", non_retryable=True)
    return given


async def tell(entity: str, signal: str, payload: object) -> bool:
    """Signal another workflow. False when it does not run: the sender goes on, and decides what that means."""
    try:
        await workflow.get_external_workflow_handle(entity).signal(signal, payload)
    except ApplicationError as error:
        if error.type == "ExternalWorkflowExecutionNotFound":
            return False
        raise
    return True


def check_request(request: Request, now: datetime) -> None:
    """For validators: refuse what came too late. Refusals leave no history."""
    if request.not_after is not None and now > request.not_after:
        raise ApplicationError(
            f"the request came too late: not_after {request.not_after.isoformat()}, now {now.isoformat()}",
            type="Expired",
            non_retryable=True,
        )


def recall(answered: list[Remembered], request: Request, kind: type[T]) -> T | None:
    """The answer already given to this request, if it is a repeat."""
    for old in answered:
        if old.request_id == request.request_id:
            return TypeAdapter(kind).validate_python(old.answer)
    return None


def remember(answered: list[Remembered], request: Request, answer: Any, now: datetime) -> None:
    """Keep the answer for repeats: bounded in time by `not_after`, and in number."""
    row = Remembered(
        request_id=request.request_id,
        not_after=request.not_after or now + ANSWER_LIFE,
        answer=TypeAdapter(type(answer)).dump_python(answer, mode="json"),
    )
    live = [r for r in answered if r.not_after >= now]
    answered[:] = [*live, row][-ANSWERS:]


def next_version(last: int) -> int:
    """A version above the last one, and above every one of an earlier life: an entity that was terminated and
    started afresh must not be ignored for ever because its count began again."""
    return max(last + 1, int(workflow.now().timestamp() * 1000))


class Rollover:
    """Counts what makes a history long, and says when to continue as new."""

    def __init__(self) -> None:
        self.updates = 0

    def due(self) -> bool:
        info = workflow.info()
        return (
            self.updates >= UPDATES
            or info.is_continue_as_new_suggested()
            or info.is_target_worker_deployment_version_changed()
        )
