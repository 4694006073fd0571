"""Fleet time inside a workflow: what time it is, and how to wait until an instant or for news."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from sunfleet.clock import TIMER_FLOOR, FleetClock


class FleetTime:
    """A workflow's view of fleet time. `now` is that of the current workflow task: late after an outage,
    never wrong, so every deadline is compared again after each wake-up."""

    def __init__(self, clock: FleetClock) -> None:
        self.clock = clock

    def now(self) -> datetime:
        return self.clock.at(workflow.now())

    def after(self, real: timedelta) -> datetime:
        """The fleet instant that a real duration from now reaches."""
        return self.now() + self.clock.fleet_duration(real)

    async def wait(self, news: Callable[[], bool], until: datetime | None) -> bool:
        """Wait for news, at most until a fleet instant (None: for ever). True when there is news."""
        if until is None:
            await workflow.wait_condition(news)
            return True
        try:
            await workflow.wait_condition(news, timeout=self.clock.until(until, self.now()))
        except TimeoutError:
            return news()
        return True

    def remaining(self, until: datetime, floor: timedelta = TIMER_FLOOR) -> timedelta:
        """The real time left until a fleet instant, clamped: a timeout of zero means none at all."""
        return max(self.clock.real_duration(until - self.now()), floor)
