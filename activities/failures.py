"""From our errors to Temporal's failures: the one place where Permanent becomes non-retryable.

A failure carries a code and a sentence, never a credential: messages are written where the fact is known, and
the cause's own text stays behind.
"""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from sunfleet.errors import NotYet, SunfleetError, Transient

P = ParamSpec("P")
T = TypeVar("T")


def as_failure(error: SunfleetError) -> ApplicationError:
    """The failure that a workflow sees. `type` is the error's code; `NotYet` is no news for a log."""
    transient = isinstance(error, Transient)
    return ApplicationError(
        error.message if not error.hint else f"{error.message} ({error.hint})",
        {"code": error.code, "message": error.message, "hint": error.hint},
        type=error.code,
        non_retryable=not transient,
        next_retry_delay=error.retry_in if isinstance(error, Transient) else None,
        category=ApplicationErrorCategory.BENIGN if isinstance(error, NotYet) else ApplicationErrorCategory.UNSPECIFIED,
    )


def failures_mapped(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Wrap an activity method so that it raises failures instead of our errors. Keeps its signature."""

    @functools.wraps(method)
    async def mapped(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except SunfleetError as error:
            raise as_failure(error) from None

    return mapped
