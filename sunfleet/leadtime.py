"""How long before a window an opening must begin: a prior from size and bandwidth, then what happened.

Steps take *real* time, also in a compressed day: the caller converts with its `FleetClock`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

KEEP = 20
MARGIN = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """What one opening took, in real time, from the hold to the proof."""

    took: timedelta
    cold: bool  # whether the weights had to come from the registry


@dataclass(frozen=True, slots=True, kw_only=True)
class Prior:
    """What to expect before anything was measured."""

    stage: timedelta
    start: timedelta


def prior(size: int | None, origin_rate: int | None, start: timedelta) -> Prior:
    """Staging `size` bytes at `origin_rate` bits per second, then starting an engine."""
    seconds = size * 8 / origin_rate if size and origin_rate else 0.0
    return Prior(stage=timedelta(seconds=seconds), start=start)


def margin(count: int) -> float:
    """What to allow on top of the longest of `count` openings: twice it after one, a quarter more after many.

    The largest of n equal draws is exceeded by the next with chance 1 / (n + 1), so few openings say little.
    """
    return MARGIN + (2 - MARGIN) / count if count else MARGIN


def lead(expected: Prior, seen: tuple[Opening, ...], cold: bool) -> timedelta:
    """The real time to allow: the largest of the recent openings (a robust upper bound of few), or the prior."""
    alike = [o.took for o in seen[-KEEP:] if o.cold == cold]
    longest = max(alike, default=expected.start + (expected.stage if cold else timedelta(0)))
    return longest * margin(len(alike))
