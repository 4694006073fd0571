"""Times and durations as people write and read them: RFC 3339, or the wall clock of a site. Pure.

A time without a zone is the site's. `09:05` is the next such instant for a deadline, the last one for a look
back; `mon 09:05` names the weekday as well.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, time, timedelta

from sunfleet import calendars
from sunfleet.errors import BadInput, Problem
from sunfleet.spec.shape import duration as read_duration

DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_WALL = re.compile(r"(?:(mon|tue|wed|thu|fri|sat|sun)\s+)?(\d{1,2}):(\d{2})", re.IGNORECASE)
HINT = "RFC 3339 such as 2026-11-02T08:00:00Z, or HH:MM in the site's zone"


def ahead(text: str, zone: str, now: datetime, *, field: str = "time") -> datetime:
    """The instant (UTC) that a person means by a deadline; a wall clock is the next such time after `now`.

    Errors: BadInput.
    """
    return _instant(text, zone, now, field, forward=True)


def back(text: str, zone: str, now: datetime, *, field: str = "time") -> datetime:
    """The instant that a person means by a look back; a wall clock is the last such time until `now`."""
    return _instant(text, zone, now, field, forward=False)


def span(text: str, *, field: str = "duration") -> timedelta:
    """`2h`, `45m`, `1d12h`. Errors: BadInput."""
    try:
        found = read_duration(text)
    except ValueError as error:
        raise _bad(field, f"{text!r} is no duration", "such as 45m, 2h or 1d") from error
    if found <= timedelta(0):
        raise _bad(field, f"{text!r} is not longer than nothing", "such as 45m, 2h or 1d")
    return found


def _instant(text: str, zone: str, now: datetime, field: str, *, forward: bool) -> datetime:
    if (wall := _WALL.fullmatch(text.strip())) is not None:
        day, hour, minute = wall.group(1), int(wall.group(2)), int(wall.group(3))
        if hour > 23 or minute > 59:
            raise _bad(field, f"{text!r} is no time of day", HINT)
        return _next_wall(day.lower() if day else "", time(hour, minute), zone, now, forward=forward)
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise _bad(field, f"{text!r} is no time", HINT) from error
    if found.tzinfo is None:
        return calendars.local_instant(found.date(), found.time(), zone)
    return found.astimezone(UTC)


def _next_wall(day: str, at: time, zone: str, now: datetime, *, forward: bool) -> datetime:
    """By local dates, not by 24 hours: clocks change."""
    today = calendars.local(now, zone).date()
    for step in range(9):
        date = today + timedelta(days=step if forward else -step)
        if day and DAYS[date.weekday()] != day:
            continue
        found = calendars.local_instant(date, at, zone)
        if (found > now) if forward else (found <= now):
            return found
    raise AssertionError("every wall-clock time comes within nine days")


def _bad(field: str, message: str, hint: str) -> BadInput:
    return BadInput((Problem(path=field, message=message, hint=hint),))


def wall(instant: datetime, zone: str, now: datetime) -> str:
    """`19:00`, or `Mon 06:30` when it is another local date."""
    local, today = calendars.local(instant, zone), calendars.local(now, zone)
    return f"{local:%H:%M}" if local.date() == today.date() else f"{local:%a %H:%M}"


def both(instant: datetime, zone: str) -> str:
    """`Mon 2 Nov 08:00 CET (07:00 UTC)`."""
    local = calendars.local(instant, zone)
    return f"{dated(local)} {local:%Z} ({instant.astimezone(UTC):%H:%M} UTC)"


def dated(moment: datetime) -> str:
    """`Mon 2 Nov 08:00`."""
    return f"{moment:%a} {moment.day} {moment:%b} {moment:%H:%M}"


def utc(instant: datetime) -> str:
    """`Mon 2 Nov 07:00 UTC`."""
    return f"{dated(instant.astimezone(UTC))} UTC"


def words(length: timedelta) -> str:
    """A length for people: `40 s`, `12 min`, `2 h 5 min`, `3 days`."""
    seconds = round(abs(length).total_seconds())
    if seconds < 90:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {rest} min" if rest else f"{hours} h"
    return f"{round(hours / 24)} days"
