"""Commands that only look: `status`, `routes`, `verify`, `why`."""

from __future__ import annotations

import asyncio
import sys
import uuid
from dataclasses import dataclass
from datetime import datetime
from functools import partial

import click

from console import picture, story, times
from console.cli.session import (
    AT_RISK,
    BROKEN,
    FINE,
    UNREACHABLE,
    Session,
    asking,
    no_such_model,
    place_of,
)
from console.facade import Console, each
from console.gathering import chosen, overview
from console.table import columns
from sunfleet.errors import BadInput, NotFound, Problem, SunfleetError
from sunfleet.promises import CHECKED, Finding

EVERY = 2.0  # seconds, of --watch
CLEAR = "\x1b[H\x1b[2J"


@click.command()
@click.option("--site", default="", help="One site alone.")
@click.option("--watch", is_flag=True, help="Again and again, until interrupted.")
@asking
async def status(session: Session, site: str, watch: bool) -> int:
    """What is warm where, what should be, and what comes next. Exit code 3 when something is at risk."""
    console = await session.console()
    fleet = await session.chosen_fleet(console)
    while True:
        found = await overview(console, fleet, site=site)
        if watch and sys.stdout.isatty() and not session.as_json:
            click.echo(CLEAR, nl=False)
        session.show("FleetStatus", found.now, found, picture.status(found))
        if not watch:
            return AT_RISK if found.at_risk else FINE
        sys.stdout.flush()
        await asyncio.sleep(EVERY)


@dataclass(frozen=True, slots=True, kw_only=True)
class RouteRow:
    """One route, and whether every gateway has it."""

    model: str
    site: str
    base_url: str
    served_name: str
    replicas: int
    version: int
    in_effect: bool


@click.command()
@click.option("--site", default="", help="One site alone.")
@asking
async def routes(session: Session, site: str) -> int:
    """Where gateways send requests."""
    console = await session.console()
    found = await overview(console, await session.chosen_fleet(console), site=site)
    rows = tuple(
        RouteRow(
            model=v.name,
            site=v.site,
            base_url=v.base_url,
            served_name=v.served_name,
            replicas=v.hot,
            version=v.routes_version,
            in_effect=v.acknowledged >= v.routes_version,
        )
        for s in found.sites
        for r in s.rows
        if (v := r.view) is not None and v.hot
    )
    session.show("Routes", found.now, rows, _routes(rows))
    return FINE


def _routes(rows: tuple[RouteRow, ...]) -> str:
    head = ("MODEL", "SITE", "SERVED NAME", "REPLICAS", "IN EFFECT", "BASE URL")
    cells = [
        (r.model, r.site, r.served_name, str(r.replicas), "yes" if r.in_effect else "not yet", r.base_url) for r in rows
    ]
    return "\n".join(columns([head, *cells])) if rows else "no routes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verified:
    """What `verify` found. A site that did not answer is neither kept nor broken."""

    promises: tuple[str, ...]
    sites: tuple[str, ...]
    findings: tuple[Finding, ...]
    unknown: dict[str, str]


@click.command()
@click.option("--site", default="", help="One site alone.")
@asking
async def verify(session: Session, site: str) -> int:
    """Compare what is recorded with what really stands at the sites. Exit code 1 when a promise is broken."""
    console = await session.console()
    fleet = await session.declared(console)
    found = await verified(console, {s.name: s.namespace for s in chosen(fleet, site)})
    session.show("Verification", console.now(), found, _verified(found))
    if found.findings:
        return BROKEN
    return UNREACHABLE if found.unknown else FINE


async def verified(console: Console, sites: dict[str, str]) -> Verified:
    """Check every site (name → namespace) at once."""
    request_id = uuid.uuid4().hex[:12]
    answers = await each({s: partial(console.verify, s, n, request_id) for s, n in sites.items()})
    return Verified(
        promises=CHECKED,
        sites=tuple(s for s, a in answers.items() if not isinstance(a, SunfleetError)),
        findings=tuple(f for a in answers.values() if not isinstance(a, SunfleetError) for f in a),
        unknown={s: a.message for s, a in answers.items() if isinstance(a, SunfleetError)},
    )


def _verified(found: Verified) -> str:
    lines = [f"{f.promise} broken at {f.site}: {f.message}" for f in found.findings]
    lines += [f"unknown: {site}: {why}" for site, why in found.unknown.items()]
    if found.sites and not found.findings:
        lines.append(f"kept at {', '.join(found.sites)}: {' '.join(found.promises)}")
    return "\n".join(lines)


@click.command()
@click.argument("what", metavar="SITE/MODEL")
@click.option("--at", help="About that instant: RFC 3339, HH:MM or `mon 09:05` at the site.")
@asking
async def why(session: Session, what: str, at: str | None) -> int:
    """Why a model at a site is as it is, or was as it was."""
    site, slash, model = what.partition("/")
    if not (site and slash and model):
        raise BadInput((Problem(path="SITE/MODEL", message=f"{what!r} is not of that form", hint="tokyo/chat-8b"),))
    console = await session.console()
    fleet = await session.declared(console)
    found, place = place_of(fleet, site, model)
    try:
        view, reasons = await asyncio.gather(console.deployment_status(place), console.reasons(place))
    except NotFound as error:
        raise no_such_model(fleet, place) from error
    instant: datetime = times.back(at, found.zone, console.now(), field="--at") if at else console.now()
    told = story.story(view, reasons, instant, last=len(reasons) if session.as_json else story.LAST)
    session.show("Why", console.now(), told, story.text(told, found.zone, past=at is not None))
    return FINE
