"""The plan of a week as text: a picture by model and day, conflicts with their fixes, costs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from console import times
from console.table import columns
from sunfleet import calendars
from sunfleet.model import FleetSpec
from sunfleet.warmth import Warmth
from sunfleet.week import Course, Difference, Shortage, Span, Week

LEGEND = "█ hot  ▒ asleep  ░ staged  · cold  ! too few GPUs     a cell is an hour of UTC: its warmest rung"
GLYPHS = {Warmth.HOT: "█", Warmth.ASLEEP: "▒", Warmth.STAGED: "░", Warmth.COLD: "·"}
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SIDE_BY_SIDE = 2  # days in a row of the picture


def text(fleet: FleetSpec, week: Week, source: str) -> str:
    """The whole page, without a last newline."""
    parts = [_heading(fleet, week, source), *_changes(fleet, week), ""]
    for model in dict.fromkeys(c.model for c in week.courses):
        parts += [*_picture(week, model), ""]
    parts += [LEGEND, ""]
    parts += [line for n, s in enumerate(week.shortages, 1) for line in _conflict(n, s, fleet)]
    parts += [f"UNKNOWN  {site}: no inventory, so nothing is said about room there" for site in week.unknown]
    return "\n".join([*parts, *_costs(week), _verdict(week)])


def conflicts(week: Week) -> tuple[int, int]:
    """Errors and warnings: a minimum that is not kept, and less than all."""
    errors = sum(1 for s in week.shortages if s.breaks_a_minimum)
    return errors, len(week.shortages) - errors


def explained(fleet: FleetSpec, week: Week, number: int) -> str:
    """One conflict in full: who has what at its worst, in the order in which the ledger gives."""
    one = week.shortages[number - 1]
    short = {loss.model: loss for loss in one.losses}
    rows: list[tuple[str, ...]] = [("MODEL", "PRIORITY", "WANTS", "MINIMUM", "GETS", "GPUs EACH", "WHY NOT MORE")]
    for course in sorted((c for c in week.courses if c.site == one.site), key=lambda c: (-c.priority, c.model)):
        span = _worst(course, one)
        if span is None or not span.hot:
            continue
        loss = short.get(course.model)
        got = loss.granted if loss else span.granted if span.granted is not None else span.hot
        rows.append(
            (
                course.model,
                str(course.priority),
                str(span.hot),
                str(span.minimum),
                str(got),
                str(course.gpus),
                loss.why if loss else "",
            )
        )
    return "\n".join([*_conflict(number, one, fleet), "", *columns(rows)])


def difference(fleet: FleetSpec, rows: Sequence[Difference]) -> str:
    """What another plan changes, a line for each time."""
    if not rows:
        return "no difference"
    table = [("SITE", "MODEL", "FROM", "UNTIL", "NOW", "THEN")]
    for row in rows:
        zone = fleet.sites[row.site].zone if row.site in fleet.sites else "UTC"
        table.append(
            (
                row.site,
                row.model,
                times.both(row.start, zone),
                times.both(row.end, zone),
                _counts(row.before),
                _counts(row.after),
            )
        )
    return "\n".join(columns(table))


def _heading(fleet: FleetSpec, week: Week, source: str) -> str:
    last = week.end - timedelta(seconds=1)
    period = f"{week.start.astimezone(UTC):%a %-d %b %H:%M} – {last.astimezone(UTC):%a %-d %b %Y}, UTC"
    return f"{fleet.name} · {source} · {period} · tzdata {calendars.tzdata_version()}"


def _changes(fleet: FleetSpec, week: Week) -> list[str]:
    found = []
    for change in week.changes:
        sites = ", ".join(s.name for s in fleet.sites.values() if s.zone == change.zone)
        sign = "+" if change.by > timedelta(0) else "−"
        found.append(f"clock:  {times.utc(change.at)}  {sites} {sign}{times.words(change.by)}")
    return found


def _picture(week: Week, model: str) -> list[str]:
    """A block of days for one model: a line per site, a cell per hour."""
    courses = [c for c in week.courses if c.model == model]
    width = max(len(c.site) for c in courses)
    days = []
    at = week.start
    while at < week.end:
        days.append((at, min(at + DAY, week.end)))
        at += DAY
    blocks = [
        _day(courses, start, end, width, model if index < SIDE_BY_SIDE else "")
        for index, (start, end) in enumerate(days)
    ]
    lines: list[str] = []
    for index in range(0, len(blocks), SIDE_BY_SIDE):
        row = blocks[index : index + SIDE_BY_SIDE]
        wide = max(len(line) for line in row[0])
        lines += ["    ".join(_padded(cells, wide)).rstrip() for cells in zip(*row, strict=True)]
    return lines


def _padded(cells: Iterable[str], wide: int) -> list[str]:
    first, *others = cells
    return [first.ljust(wide), *others]


def _day(courses: Sequence[Course], start: datetime, end: datetime, width: int, title: str) -> list[str]:
    label = f"{start.astimezone(UTC):%a %-d %b}"
    left = max(len(label) + 2, 12)
    lines = [f"{title:<{left + width + 2}}{_hours(start, end)}"] if title else []
    for index, course in enumerate(courses):
        cells = "".join(_cell(course, start + HOUR * i, end) for i in range(int((end - start) / HOUR + 0.999)))
        lines.append(f"{label if index == 0 else '':<{left}}{course.site:<{width}}  {cells}")
    return lines


def _hours(start: datetime, end: datetime) -> str:
    found = ""
    for index in range(int((end - start) / HOUR)):
        hour = (start + HOUR * index).astimezone(UTC).hour
        if hour % 6 == 0:
            found = found.ljust(index) + f"{hour:02d}"
    return found


def _cell(course: Course, start: datetime, end: datetime) -> str:
    spans = [s for s in course.spans if s.start < min(start + HOUR, end) and s.end > start]
    if any(s.short for s in spans):
        return "!"
    return GLYPHS[max((s.rung for s in spans), key=lambda r: r.height, default=Warmth.COLD)]


def _conflict(number: int, one: Shortage, fleet: FleetSpec) -> list[str]:
    word = "ERROR" if one.breaks_a_minimum else "WARN "
    zone = fleet.sites[one.site].zone
    lines = [
        f"{word} {number}  {one.site} wants {one.wanted} of {one.usable} GPUs, "
        f"{times.both(one.start, zone)} – {times.wall(one.end, zone, one.start)}"
    ]
    for loss in one.losses:
        least = f", minimum {loss.minimum}" if loss.minimum else ""
        lines.append(f"         {loss.model} runs {loss.granted} of {loss.wanted}{least}: {loss.why}")
    if one.nodes_missing is None:
        lines.append("         fix:  fewer hot replicas then; more nodes like those that are there do not help")
    else:
        some = "node" if one.nodes_missing == 1 else "nodes"
        lines.append(
            f"         fix:  {one.nodes_missing} more {some} like the site's largest, or fewer hot replicas then"
        )
    return lines


def _worst(course: Course, one: Shortage) -> Span | None:
    inside = [s for s in course.spans if s.start < one.end and s.end > one.start]
    return max(inside, key=lambda s: (s.short, s.hot), default=None)


def _costs(week: Week) -> list[str]:
    head = ("", "GPU-HOURS HOT", "ALWAYS ON AT PEAK", "SHARE", "OPENINGS", "USD", "USD ALWAYS ON")
    rows: list[tuple[str, ...]] = [head]
    for cost in week.costs:
        share = f"{cost.hot / cost.always_on:.0%}" if cost.always_on else "–"
        money = (f"{cost.usd:,}", f"{cost.usd_always_on:,}") if cost.usd_always_on else ("–", "–")
        rows.append((cost.site, f"{cost.hot:,}", f"{cost.always_on:,}", share, str(cost.openings), *money))
    return ["", *columns(rows)]


def _verdict(week: Week) -> str:
    errors, warnings = conflicts(week)
    if not errors and not warnings:
        return "no conflict" + (" is known" if week.unknown else "")
    counts = [f"{n} {word}{'' if n == 1 else 's'}" for n, word in ((errors, "error"), (warnings, "warning")) if n]
    return f"{', '.join(counts)}; next: sunfleet plan --explain 1"


def _counts(counts: tuple[int, int, int]) -> str:
    hot, asleep, staged = counts
    words = [f"{n} {word}" for n, word in ((hot, "hot"), (asleep, "asleep"), (staged, "staged")) if n]
    return ", ".join(words) or "cold"
