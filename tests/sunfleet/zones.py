"""The system's `zdump` as an oracle: what a zone does, read from the zone files by another program than ours."""

from __future__ import annotations

import importlib.resources
import os
import re
import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache

_LINE = re.compile(
    r"(?P<file>\S+) +\w{3} (?P<at>\w{3} +\d+ [\d:]{8} \d{4}) UTC? = .* isdst=\d gmtoff=(?P<offset>-?\d+)"
)


@dataclass(frozen=True, slots=True)
class Change:
    """A zone's offset changes at an instant (UTC)."""

    at: datetime
    before: timedelta
    after: timedelta


@cache
def changes(zones: tuple[str, ...], first: int, last: int) -> dict[str, tuple[Change, ...]]:
    """Every change of offset of each zone in the years [first, last), from the files that Sunfleet reads."""
    root = importlib.resources.files("tzdata").joinpath("zoneinfo")
    files = {str(root.joinpath(*zone.split("/"))): zone for zone in zones}
    done = subprocess.run(
        ["zdump", "-v", "-c", f"{first},{last}", *files],
        check=True,
        capture_output=True,
        text=True,
        env={"PATH": os.environ["PATH"], "LC_ALL": "C"},
    )
    found: dict[str, list[Change]] = {zone: [] for zone in zones}
    previous: tuple[str, timedelta] | None = None
    for line in done.stdout.splitlines():
        row = _LINE.match(line)
        if row is None:
            continue
        zone, offset = files[row["file"]], timedelta(seconds=int(row["offset"]))
        at = datetime.strptime(row["at"], "%b %d %H:%M:%S %Y").replace(tzinfo=UTC)
        if previous is not None and previous[0] == zone and previous[1] != offset:
            found[zone].append(Change(at=at, before=previous[1], after=offset))
        previous = zone, offset
    return {zone: tuple(rows) for zone, rows in found.items()}


def resolve(wall: datetime, rows: tuple[Change, ...]) -> datetime:
    """The instant of a wall-clock time by the two rules, read naively from a zone's changes (at least one).

    The first instant at which the clock shows `wall`; if there is none, the change that jumps over it.
    """
    naive = wall.replace(tzinfo=UTC)
    starts = [datetime.min.replace(tzinfo=UTC), *(c.at for c in rows)]
    ends = [*(c.at for c in rows), datetime.max.replace(tzinfo=UTC)]
    offsets = [rows[0].before, *(c.after for c in rows)]
    for start, end, offset in zip(starts, ends, offsets, strict=True):
        if start <= naive - offset < end:
            return naive - offset
    return next(c.at for c in rows if c.at + c.before <= naive < c.at + c.after)
