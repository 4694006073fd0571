"""What a pool's windows must be: countable, no longer than their period, and never silently below a floor."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, timedelta
from itertools import pairwise

from sunfleet import calendars, names
from sunfleet.spec.document import Path
from sunfleet.spec.shape import Pool, Window

Found = Iterator[tuple[Path, str, str, str]]  # path, message, hint, code
NOT_YET = "NotYetSupported"
_MINUTE = timedelta(minutes=1)
_NO_SLEEP = "engines do not sleep yet", "use staged or hot", NOT_YET


def check(path: Path, pool: Pool) -> Found:
    """Every rule on the windows of one pool, and on what holds outside them."""
    seen: set[str] = set()
    for index, window in enumerate(pool.windows):
        at: Path = (*path, "windows", index)
        if window.name in seen:
            yield (*at, "name"), f"two windows are called {window.name!r}", "", "Duplicate"
        seen.add(window.name)
        if not names.is_label(window.name):
            message = f"{window.name[:60]!r} is no DNS label of at most {names.NAME_LIMIT} characters"
            yield (*at, "name"), message, "", "BadName"
        yield from _counts(at, window)
        yield from _hours(at, window)
        yield from _floors(path, index, pool)
    if pool.otherwise.asleep:
        yield ((*path, "otherwise", "asleep"), *_NO_SLEEP)


def _counts(path: Path, window: Window) -> Found:
    if window.hot is None and window.asleep is None and window.staged is None:
        yield path, "a window needs a count", "hot: 2", "Missing"
    if window.asleep:
        yield ((*path, "asleep"), *_NO_SLEEP)
    if window.min is not None and window.min > (window.hot or 0):
        yield (
            (*path, "min"),
            f"min {window.min} is above hot {window.hot or 0}",
            "min says how many of `hot` come first under shortage",
            "AboveCeiling",
        )


def _hours(path: Path, window: Window) -> Found:
    if window.always:
        if window.start is not None or window.for_ is not None or window.days != ["daily"]:
            yield path, "a window is `always`, or has `days`, `start` and `for`", "leave one of them out", "Invalid"
        return
    if window.start is None or window.for_ is None:
        yield path, "a window needs `start` and `for`, or `always: true`", 'start: "08:00", for: 11h', "Missing"
        return
    days = expanded_days(window)
    if "holiday" in days:
        yield (*path, "days"), "holidays are not known yet", "list dates (YYYY-MM-DD) for now", NOT_YET
    for day in days:
        if day[:1].isdigit() and not _is_date(day):
            yield (*path, "days"), f"{day!r} is no date", "", "Invalid"
    period = _period(days)
    if window.for_ < _MINUTE or window.for_ % _MINUTE:
        yield (*path, "for"), "a window lasts whole minutes, at least one", "", "Invalid"
    elif window.for_ > period:
        span = f"{period.days} days" if period.days > 1 else "24 h"
        yield (
            (*path, "for"),
            f"the window is longer than a period: it opens again after {span}",
            "use always: true for what never closes",
            "LongerThanPeriod",
        )


def _floors(path: Path, index: int, pool: Pool) -> Found:
    """A count that something else in the pool silently lifts, or that falls below what holds outside."""
    window = pool.windows[index]
    at: Path = (*path, "windows", index)
    if window.hot is None or window.always:
        return
    if window.hot < pool.otherwise.hot:
        yield (
            (*at, "hot"),
            f"hot {window.hot} is below otherwise.hot {pool.otherwise.hot}",
            "otherwise is for the time outside every window; raise one or lower the other",
            "BelowFloor",
        )
    elif window.hot == 0 and window.staged is None and window.asleep is None and pool.otherwise.staged > 0:
        yield (
            (*at, "hot"),
            f"the window asks for nothing, below otherwise.staged {pool.otherwise.staged}",
            f"add staged: {pool.otherwise.staged}, or staged: 0 if nothing is meant",
            "BelowFloor",
        )
    for other, floor in enumerate(pool.windows):
        if floor.always and (floor.hot or 0) > window.hot:
            yield (
                (*at, "hot"),
                f"hot {window.hot} is below windows[{other}].hot {floor.hot}, which is always: the higher count wins",
                "give the always window fewer, or hours of its own",
                "BelowFloor",
            )


def expanded_days(window: Window) -> tuple[str, ...]:
    """`mon-fri` and lists as single days, in the order of the file; ranges may run over Sunday."""
    found: list[str] = []
    for text in window.days:
        first, dash, last = text.partition("-")
        if dash and first in calendars.WEEKDAYS:
            start, end = calendars.WEEKDAYS.index(first), calendars.WEEKDAYS.index(last)
            found += [calendars.WEEKDAYS[i % 7] for i in range(start, (end if end >= start else end + 7) + 1)]
        else:
            found.append(text)
    return tuple(dict.fromkeys(found))


def _period(days: tuple[str, ...]) -> timedelta:
    """The shortest time between two openings, at most a week: what is longer overlaps itself, or has no end."""
    if "daily" in days:
        return timedelta(days=1)
    week = sorted(calendars.WEEKDAYS.index(d) for d in days if d in calendars.WEEKDAYS)
    gaps = [7, *(b - a for a, b in pairwise([*week, week[0] + 7]))] if week else [7]
    dates = sorted(date.fromisoformat(d) for d in days if _is_date(d))
    gaps += [(b - a).days for a, b in pairwise(dates)]
    gaps += [_to_weekday(d, week) for d in dates if week]
    return timedelta(days=min(gaps))


def _to_weekday(day: date, week: list[int]) -> int:
    """Days between a date and the nearest other opening on a weekday, before or after."""
    ahead = min((w - day.weekday()) % 7 or 7 for w in week)
    behind = min((day.weekday() - w) % 7 or 7 for w in week)
    return min(ahead, behind)


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
