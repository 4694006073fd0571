"""Windows in a zone to instants: the only place that knows time zones.

The rules, for local times that a clock change makes strange:

- A local time that does not exist (the clock jumps over it) is the first valid instant after the gap.
- A local time that comes twice is its first occurrence.
- A window is local dates × start + duration **on the wall clock**: `08:00 for 11h` closes at 19:00 local also
  on the day on which the clock changes in between. Opening and closing follow the two rules above; a closing
  is never before its opening. A window that lies wholly in a gap has no time on that date, and does not open.

So each local date and rule gives one window, and stepping goes by local dates, never by 86,400 seconds.
Zones are IANA names from the `tzdata` package, whose version is known; the machine's own data is not used.
"""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import tzdata

from sunfleet.model import PoolSpec, SiteSpec, WindowSpec
from sunfleet.warmth import Claim, Warmth

WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
DAILY = "daily"
LONGEST = timedelta(days=7)
_DAY = timedelta(days=1)
_YEAR = timedelta(days=370)
_NOT_ZONES = ("localtime", "posixrules", "Factory")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    """One window on one local date, as instants: half-open, [opens, closes)."""

    window: str
    on: date
    opens: datetime
    closes: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalEdge:
    """A wall-clock time at which some window opens or closes, and on which weekdays (0 is Monday)."""

    zone: str
    hour: int
    minute: int
    weekdays: tuple[int, ...]


def tzdata_version() -> str:
    """The IANA version behind every answer, such as 2026c."""
    return str(tzdata.IANA_VERSION)


@lru_cache(maxsize=1)
def zones() -> frozenset[str]:
    """Every zone name that may be written."""
    text = importlib.resources.files("tzdata").joinpath("zones").read_text()
    return frozenset(n for n in text.split() if n not in _NOT_ZONES and not n.startswith(("posix/", "right/")))


def is_zone(name: str) -> bool:
    """Whether `name` is an IANA zone: no offsets, no `local`, never empty."""
    return name in zones()


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    """The zone from the package, whatever the machine has."""
    if not is_zone(name):
        raise ValueError(f"{name!r} is no IANA time zone")
    *folders, last = name.split("/")
    package = ".".join(("tzdata", "zoneinfo", *folders))
    with importlib.resources.files(package).joinpath(last).open("rb") as data:
        return ZoneInfo.from_file(data, key=name)


def local_instant(day: date, at: time, zone: str) -> datetime:
    """The instant (UTC) of a local wall-clock time, by the rules above."""
    wall = datetime.combine(day, at)
    info = _zone(zone)
    first = wall.replace(tzinfo=info, fold=0).astimezone(UTC)
    if first.astimezone(info).replace(tzinfo=None) == wall:
        return first  # it exists; fold=0 is the first of two
    return _after_gap(wall, info)


def _after_gap(wall: datetime, info: ZoneInfo) -> datetime:
    """The first valid instant after the gap in which a wall-clock time falls.

    With fold=0 a time in a gap is read by the offset before it, with fold=1 by the one after it (PEP 495):
    the transition lies between the two readings.
    """
    late = wall.replace(tzinfo=info, fold=0).astimezone(UTC)
    early = wall.replace(tzinfo=info, fold=1).astimezone(UTC)
    return _when_offset_changes(early, late, _offset(early, info), info)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """A zone's wall clock is put forward (positive) or back at an instant."""

    zone: str
    at: datetime
    by: timedelta


def clock_changes(zone: str, start: datetime, end: datetime) -> tuple[ClockChange, ...]:
    """Every change of a zone's offset in [start, end), to the second."""
    info = _zone(zone)
    found = []
    at, offset = start, _offset(start, info)
    while at < end:
        then = min(at + timedelta(hours=1), end)
        if (now := _offset(then, info)) != offset:
            instant = _when_offset_changes(at, then, offset, info)
            if start <= instant < end:
                found.append(ClockChange(zone=zone, at=instant, by=now - offset))
        at, offset = then, now
    return tuple(found)


def _offset(instant: datetime, info: ZoneInfo) -> timedelta:
    return instant.astimezone(info).utcoffset() or timedelta(0)


def _when_offset_changes(low: datetime, high: datetime, before: timedelta, info: ZoneInfo) -> datetime:
    """The first second in (low, high] with another offset than `before`."""
    while high - low > timedelta(seconds=1):
        middle = (low + (high - low) / 2).replace(microsecond=0)
        if _offset(middle, info) == before:
            low = middle
        else:
            high = middle
    return high


def local(instant: datetime, zone: str) -> datetime:
    """An instant as the zone's wall clock shows it (aware)."""
    return instant.astimezone(_zone(zone))


def applies(window: WindowSpec, day: date) -> bool:
    """Whether the window opens on a local date."""
    return any(d in (DAILY, WEEKDAYS[day.weekday()], day.isoformat()) for d in window.days)


def opening(window: WindowSpec, day: date, zone: str) -> Opening:
    """The window of one local date."""
    opens, closes = _hours(window.start, window.duration, day, zone)
    return Opening(window=window.name, on=day, opens=opens, closes=closes)


@lru_cache(maxsize=65536)
def _hours(start: str, duration: timedelta, day: date, zone: str) -> tuple[datetime, datetime]:
    """Opening and closing on one local date: the same for every model with such a window."""
    at = time.fromisoformat(start)
    end = datetime.combine(day, at) + duration
    opens = local_instant(day, at, zone)
    return opens, max(opens, local_instant(end.date(), end.time(), zone))


def openings(window: WindowSpec, zone: str, start: datetime, end: datetime) -> Iterator[Opening]:
    """The windows that overlap [start, end), in the order of their local dates. Not for `always`."""
    day = local(start, zone).date() - timedelta(days=window.duration.days + 2)
    last = local(end, zone).date() + _DAY
    while day <= last:
        if applies(window, day):
            found = opening(window, day, zone)
            if found.opens < found.closes and found.closes > start and found.opens < end:
                yield found
        day += _DAY


def member(window: WindowSpec, zone: str, instant: datetime) -> bool:
    """Whether an instant is inside the window: a pure function of its arguments."""
    if window.always:
        return True
    return any(o.opens <= instant < o.closes for o in openings(window, zone, instant, instant + timedelta(seconds=1)))


def next_opening(window: WindowSpec, zone: str, after: datetime) -> datetime | None:
    """The first opening strictly after an instant; None for `always`, or when there is none within a year."""
    if window.always:
        return None
    return next((o.opens for o in openings(window, zone, after, after + _YEAR) if o.opens > after), None)


def next_edge(window: WindowSpec, zone: str, after: datetime) -> datetime | None:
    """The first opening or closing strictly after an instant; None when there is none within a year."""
    if window.always:
        return None
    found = next(openings(window, zone, after, after + _YEAR), None)
    if found is None:
        return None
    return found.opens if found.opens > after else found.closes


def expand(pool: PoolSpec, site: SiteSpec, start: datetime, end: datetime, priority: int) -> tuple[Claim, ...]:
    """The claims of a pool at a site that bind somewhere in [start, end): whole windows, sorted by instant.

    `otherwise` binds exactly outside every window. What has no edge of its own (`always`, a rest of weeks) begins
    and ends at local midnights around, so that two looks on one day give equal claims.
    """
    claims: list[Claim] = []
    covered: list[tuple[datetime, datetime]] = []
    first, last = _midnight(start, site.zone, 0), _midnight(end, site.zone, 1)
    for window in pool.windows:
        spans = [(first, last)] if window.always else _spans(window, site.zone, start, end)
        covered += spans
        for opens, closes in spans:
            if closes > start and opens < end:
                claims += _claims(f"window/{pool.name}/{window.name}", window, opens, closes, priority)
    rest = pool.otherwise
    outside = WindowSpec(name="otherwise", hot=rest.hot, asleep=rest.asleep, staged=rest.staged, minimum=rest.hot)
    around = _midnight(start - LONGEST, site.zone, 0), _midnight(end + LONGEST, site.zone, 1)
    for opens, closes in _gaps(covered, *around):
        if closes > start and opens < end:
            claims += _claims(f"otherwise/{pool.name}", outside, opens, closes, priority)
    return tuple(sorted(claims, key=lambda c: (c.ready_by, c.source, c.warmth)))


def _midnight(instant: datetime, zone: str, days: int) -> datetime:
    """The beginning of the local date of an instant, or of a date some days later."""
    return local_instant(local(instant, zone).date() + timedelta(days=days), time(), zone)


def _spans(window: WindowSpec, zone: str, start: datetime, end: datetime) -> list[tuple[datetime, datetime]]:
    """A window's spans so far around [start, end) that every edge of a gap in it is known."""
    return [(o.opens, o.closes) for o in openings(window, zone, start - LONGEST, end + LONGEST)]


def _claims(source: str, window: WindowSpec, opens: datetime, closes: datetime, priority: int) -> list[Claim]:
    rungs = ((Warmth.HOT, window.hot), (Warmth.ASLEEP, window.asleep), (Warmth.STAGED, window.staged))
    return [
        Claim(
            source=source,
            warmth=rung,
            count=count,
            ready_by=opens,
            expires_at=closes,
            priority=priority,
            minimum=window.minimum if rung is Warmth.HOT else 0,
        )
        for rung, count in rungs
        if count > 0
    ]


def _gaps(
    spans: list[tuple[datetime, datetime]], start: datetime, end: datetime
) -> Iterator[tuple[datetime, datetime]]:
    """The pieces of [start, end) outside every span, ascending."""
    at = start
    for opens, closes in sorted(spans):
        if opens > at:
            yield at, min(opens, end)
        at = max(at, closes)
    if at < end:
        yield at, end


def edges(pool: PoolSpec, site: SiteSpec) -> tuple[LocalEdge, ...]:
    """The wall-clock edges of a pool's weekly windows at a site, for Schedules; dates have none of their own."""
    found: dict[tuple[int, int], set[int]] = {}
    for window in pool.windows:
        if window.always:
            continue
        days = {i for i, name in enumerate(WEEKDAYS) if name in window.days or DAILY in window.days}
        start = time.fromisoformat(window.start)
        end = datetime.combine(date(2024, 1, 1), start) + window.duration  # a Monday
        later = (end.date() - date(2024, 1, 1)).days
        found.setdefault((start.hour, start.minute), set()).update(days)
        found.setdefault((end.hour, end.minute), set()).update((d + later) % 7 for d in days)
    return tuple(
        LocalEdge(zone=site.zone, hour=hour, minute=minute, weekdays=tuple(sorted(days)))
        for (hour, minute), days in sorted(found.items())
        if days
    )
