"""The status picture: views in, text out. Pure, so that what people see is tested as text."""

from __future__ import annotations

from datetime import datetime, timedelta

from console import times
from console.overview import Overview, Row, SiteOverview
from console.table import columns
from sunfleet import calendars
from sunfleet.messages import DeploymentStatusView, Health
from sunfleet.residency import Phase
from sunfleet.warmth import Warmth

LEGEND = "█ hot  ▓ opening  ▒ asleep  ░ staged  · cold"
HEAD = ("", "SITE", "LOCAL", "GPUS held/usable", "POOL", "NOW", "WANT", "NEXT")
BAR = 12  # blocks; more are said in words alone


def status(overview: Overview) -> str:
    """The whole page, without a last newline."""
    rows: list[tuple[str, ...]] = [HEAD]
    for site in overview.sites:
        rows += _site(site, overview.now)
    parts = [heading(overview), "", *columns(rows), LEGEND, *_notes(overview), _routes(overview)]
    return "\n".join(parts)


def heading(overview: Overview) -> str:
    """`prod · revision 41 by ana, 2 days ago · Mon 2 Nov 06:41 UTC`."""
    fleet = overview.fleet
    by = f" by {fleet.author}" if fleet.author else ""
    ago = f", {times.words(overview.now - fleet.at)} ago" if fleet.at else ""
    behind = f" · revision {fleet.applied} in effect" if fleet.applied != fleet.revision else ""
    return f"{fleet.fleet} · revision {fleet.revision}{by}{ago}{behind} · {times.utc(overview.now)}"


def _site(site: SiteOverview, now: datetime) -> list[tuple[str, ...]]:
    """One line per model; the site's own columns on the first."""
    local = calendars.local(now, site.zone)
    own = (site.name, f"{local:%a %H:%M}", _gpus(site))
    rows = site.rows or (Row(model="", pools=("no models",)),)
    return [
        ("!" if row.at_risk else "", *(own if i == 0 else ("", "", "")), row.label, *_row(row, site, now))
        for i, row in enumerate(rows)
    ]


def _gpus(site: SiteOverview) -> str:
    if site.view is None:
        return "unknown"
    usable, held = site.view.usable, site.view.held
    found = [f"{held.get(r, 0)}/{n} {site.gpus[r]}" for r, n in sorted(usable.items()) if r in site.gpus]
    return ", ".join(found) or "none seen yet"


def _row(row: Row, site: SiteOverview, now: datetime) -> tuple[str, str, str]:
    """NOW, WANT and NEXT."""
    if row.view is None:
        return ("?", "", row.problem) if row.problem else ("", "", "")
    bar, text = present(row.view)
    return f"{bar} {text}", want(row.view, site.zone, now), ahead(row.view, site.zone, now)


def present(view: DeploymentStatusView) -> tuple[str, str]:
    """The bar and its words: what is so now."""
    hot, opening = view.hot, view.opening
    on_disk = [r for r in view.replicas if r.rung is Warmth.STAGED and not r.leaving]
    staged = sum(1 for r in on_disk if r.phase is Phase.STAGED)
    bar = ("█" * hot + "▓" * opening + "░" * len(on_disk))[:BAR] or "·"
    if hot:
        return bar, f"{hot} hot"
    if opening:
        return bar, f"{opening} {_step(view)}"
    if staged:
        return bar, f"{staged} staged"
    return bar, "staging" if on_disk else "cold"


def _step(view: DeploymentStatusView) -> str:
    """The step of the least advanced opening replica: it is the one that a promise waits for."""
    order = (Phase.WAITING, Phase.STAGING, Phase.STAGED, Phase.STARTING, Phase.LOADING, Phase.PROVING)
    phases = {r.phase for r in view.replicas if r.rung is Warmth.HOT and not r.leaving}
    return next((p.value.lower() for p in order if p in phases), "opening")


def want(view: DeploymentStatusView, zone: str, now: datetime) -> str:
    """What should be so, and by when if that is still ahead."""
    if view.next and view.ready_by and view.ready_by > now and view.next.hot > view.target.hot:
        return f"{view.next.hot} by {times.wall(view.ready_by, zone, now)}"
    target = view.target
    for count, word in ((target.hot, "hot"), (target.asleep, "asleep"), (target.staged, "staged")):
        if count:
            return f"{count} {word}"
    return f"capped by {target.capped_by.split('/')[0]}" if target.capped_by else "cold"


def ahead(view: DeploymentStatusView, zone: str, now: datetime) -> str:
    """What comes next: the forecast while something opens, else the next change."""
    if view.health in (Health.WAITING, Health.BLOCKED):
        return view.message
    if view.health is Health.PAUSED:
        return f"paused until {times.wall(view.paused_until, zone, now) if view.paused_until else 'resumed'}"
    if view.eta is not None:
        return f"{times.wall(view.eta, zone, now)} ready{_spare(view, now)}"
    return f"{times.wall(view.next.at, zone, now)} → {_rung(view)}" if view.next else ""


def _spare(view: DeploymentStatusView, now: datetime) -> str:
    """How a forecast stands to its promise; a promise that is already past is not counted again."""
    if view.ready_by is None or view.eta is None or view.ready_by <= now:
        return ""
    spare = view.ready_by - view.eta
    return f", {times.words(spare)} to spare" if spare >= timedelta(0) else f", {times.words(spare)} LATE"


def _rung(view: DeploymentStatusView) -> str:
    edge = view.next
    if edge is None:
        return ""
    if edge.hot:
        return f"{edge.hot} hot" if view.target.hot else "hot"
    return "asleep" if edge.asleep else "staged" if edge.staged else "cold"


def _notes(overview: Overview) -> list[str]:
    """What needs somebody, one paragraph each."""
    found: list[str] = []
    for site in overview.sites:
        for row in site.rows:
            if row.at_risk:
                found += ["", *_risk(site, row, overview.now)]
        if site.applied:
            found += ["", f"at risk: revision {overview.fleet.revision} is not at {site.name} yet: {site.applied}"]
        if site.problem:
            found += ["", f"at risk: {site.name} is unknown: {site.problem}"]
        found += [f"alarm: {site.name}: {alarm}" for alarm in site.alarms]
        for closure in site.view.closures if site.view else ():
            found.append(f"take-back: {site.name}/{closure.node} by {times.both(closure.by, site.zone)}")
    return found


def _risk(site: SiteOverview, row: Row, now: datetime) -> list[str]:
    what = f"{site.name}/{row.label}"
    if row.view is None:
        return [f"at risk: {what} is unknown: {row.problem}"]
    view = row.view
    line = f"at risk: {what}"
    if view.ready_by is not None and view.ready_by > now:
        line += f" opens {times.both(view.ready_by, site.zone)}"
    if view.eta is not None:
        line += f", forecast {times.wall(view.eta, site.zone, now)} (P95)"
    return [line, f"  cause: {view.message}", f"  try:   sunfleet why {site.name}/{row.model}"]


def _routes(overview: Overview) -> str:
    views = [r.view for s in overview.sites for r in s.rows if r.view is not None]
    done = sum(1 for v in views if v.acknowledged >= v.routes_version)
    return f"routes: in effect for {done} of {len(views)} deployments"
