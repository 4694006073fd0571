"""What news of replicas does to a residence: openings teach, failures make the next try wait, strays are taken over."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from sunfleet.leadtime import KEEP, Opening
from sunfleet.ledger import Held
from sunfleet.residency import Phase, Place, Residence

# Real time.
BACKOFF = timedelta(seconds=5)
BACKOFF_MOST = timedelta(minutes=10)


def opened(residence: Residence, took: timedelta | None, *, cold: bool) -> Residence:
    """A replica serves: remember what the opening took (None: not known), and forget earlier failures."""
    residence = replace(residence, failures=0, not_before=None, blocked="")
    if took is None:
        return residence
    return replace(residence, openings=(*residence.openings, Opening(took=took, cold=cold))[-KEEP:])


def pause_after(failures: int, *, permanent: bool) -> timedelta:
    """How long to wait, in real time, after so many failures in a row: 10 s, 20 s, … 10 minutes."""
    return BACKOFF_MOST if permanent else min(BACKOFF * 2 ** min(failures, 10), BACKOFF_MOST)


def failed(residence: Residence, not_before: datetime, blocked: str) -> Residence:
    """One more failure in a row; nothing is added before the instant."""
    return replace(residence, failures=residence.failures + 1, not_before=not_before, blocked=blocked)


def adopted(residence: Residence, key: str, held: Held, now: datetime) -> Residence:
    """With the place of a replica that runs on a hold which an earlier life of the deployment had."""
    place = Place(
        key=key,
        rung=held.hold.rung,
        added=now,
        phase=Phase.STARTING,
        since=now,
        hold=held.hold,
        started=True,
        retire_by=held.retire_by,
        why="adopted",
    )
    return replace(residence, places=(*residence.places, place))
