"""`why`: what became of one model at one site, from the reasons that it kept. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from console import times
from console.table import columns
from sunfleet import calendars
from sunfleet.messages import DeploymentStatusView
from sunfleet.reasons import Reason

LAST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What is so now, and the reasons known at an instant, newest last. `older` were left out."""

    at: datetime
    view: DeploymentStatusView
    reasons: tuple[Reason, ...]
    older: int
    forgotten: bool  # the instant lies before the first reason that is kept


def story(view: DeploymentStatusView, reasons: tuple[Reason, ...], at: datetime, *, last: int = LAST) -> Story:
    """The last reasons until an instant."""
    known = tuple(r for r in reasons if r.at <= at)
    return Story(
        at=at,
        view=view,
        reasons=known[-last:],
        older=max(0, len(known) - last),
        forgotten=not known and bool(reasons),
    )


def text(found: Story, zone: str, *, past: bool) -> str:
    """For people: site-local times; `past` when they asked about an instant, not about now."""
    view = found.view
    head = f"{view.site}/{view.name} at {times.both(found.at, zone)}"
    lines = [head if past else f"{head}: {view.health.upper()}, {_now(view)}", ""]
    if not past:
        lines.append(f"wanted    {_wanted(view, zone, found.at)}")
        lines += [f"cap       {_cap(c.source, c.by, c.why)}" for c in view.caps]
        lines += [f"message   {view.message}", ""] if view.message else [""]
    if not found.reasons:
        lines.append("nothing is remembered from then: older reasons are in the log" if found.forgotten else "no news")
        return "\n".join(lines)
    zone_name = f"{calendars.local(found.at, zone):%Z}"
    rows = [(zone_name, "WHAT", "", "EVENT"), *(_row(r, zone, found.at) for r in found.reasons)]
    lines += [f"  {line}" for line in columns(rows)]
    if found.older:
        lines.append(f"  and {found.older} older ones: --json has them all")
    return "\n".join(lines)


def _now(view: DeploymentStatusView) -> str:
    return f"{view.hot} hot, wanted hot {view.target.hot}"


def _wanted(view: DeploymentStatusView, zone: str, now: datetime) -> str:
    target = view.target
    parts = [f"{n} {w}" for n, w in ((target.hot, "hot"), (target.asleep, "asleep"), (target.staged, "staged")) if n]
    line = ", ".join(parts) or "nothing"
    if target.because:
        line += f" because of {target.because}"
    if view.next is not None:
        line += f"; next change {times.wall(view.next.at, zone, now)}"
    return line


def _cap(source: str, by: str, why: str) -> str:
    return f"{source}{f' by {by}' if by else ''}{f': {why}' if why else ''}"


def _row(reason: Reason, zone: str, at: datetime) -> tuple[str, str, str, str]:
    local, today = calendars.local(reason.at, zone), calendars.local(at, zone)
    when = f"{local:%H:%M:%S}" if local.date() == today.date() else f"{local:%a %H:%M:%S}"
    by = f" ({reason.actor})" if reason.actor else ""
    cause = f"; {reason.cause}" if reason.cause else ""
    return when, reason.code, f"{reason.message}{cause}{by}", reason.id
