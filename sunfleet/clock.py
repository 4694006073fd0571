"""Fleet time: real time, or real time made faster, so that a day can be watched in minutes.

Every entity carries a `FleetClock` in its input. Deadlines, windows and claims are instants of fleet time;
activity timeouts, heartbeats and retries stay real. At rate 1 both are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMER_FLOOR = timedelta(milliseconds=50)


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetClock:
    """Fleet time passes `rate` times as fast as real time, from `fleet_origin` at `real_origin`."""

    real_origin: datetime = EPOCH
    fleet_origin: datetime = EPOCH
    rate: float = 1.0  # above 0: time stands still for nobody

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise ValueError(f"fleet time cannot pass {self.rate} times as fast as real time")

    def at(self, real: datetime) -> datetime:
        """The fleet instant at a real instant, both aware and in UTC."""
        return self.fleet_origin + (real - self.real_origin) * self.rate

    def real(self, fleet: datetime) -> datetime:
        """The real instant at which fleet time reads `fleet`."""
        return self.real_origin + (fleet - self.fleet_origin) / self.rate

    def real_duration(self, fleet: timedelta) -> timedelta:
        """How long a fleet duration takes in real time."""
        return fleet / self.rate

    def fleet_duration(self, real: timedelta) -> timedelta:
        """How much fleet time passes in a real duration: what a real load costs a compressed day."""
        return real * self.rate

    def until(self, fleet: datetime, now: datetime) -> timedelta:
        """The real time from fleet instant `now` to `fleet`, never below the timer floor."""
        return max((fleet - now) / self.rate, TIMER_FLOOR)


REAL_TIME = FleetClock()
