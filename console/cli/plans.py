"""`sunfleet plan`: the week ahead, from a file or from what runs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, time, timedelta
from functools import partial
from pathlib import Path

import click

from console import inventories, times, weekview
from console.cli.session import AT_RISK, FINE, Session, asking
from console.facade import each
from console.gathering import chosen
from sunfleet import spec, week
from sunfleet.errors import BadInput, Problem, SunfleetError, Unreachable
from sunfleet.inventory import Inventory
from sunfleet.messages import SiteStatusView
from sunfleet.model import FleetSpec

LONGEST = 62  # days


@dataclass(frozen=True, slots=True)
class Basis:
    """What is planned: a fleet, what its sites have, and where both come from."""

    fleet: FleetSpec
    inventories: dict[str, Inventory]
    source: str
    now: datetime


@click.command()
@click.option("-f", "--file", "path", default="", help="A fleet file; default: the newest revision of what runs.")
@click.option("--days", type=click.IntRange(1, LONGEST), default=7, show_default=True, help="How many.")
@click.option("--from", "since", default="", help="RFC 3339, or a date; default: today at 00:00 UTC.")
@click.option("--site", default="", help="One site alone.")
@click.option(
    "--inventory",
    type=click.Path(path_type=Path, dir_okay=False),
    help="What the sites have; default: what runs knows, or unknown.",
)
@click.option("--diff", "other", default="", help="Another fleet file: what it would change.")
@click.option("--explain", type=click.IntRange(min=1), help="The conflict of this number in full.")
@asking
async def plan(
    session: Session,
    path: str,
    days: int,
    since: str,
    site: str,
    inventory: Path | None,
    other: str,
    explain: int | None,
) -> int:
    """The coming week hour by hour: what is warm where, conflicts with their fixes, costs. Exit code 3 on a conflict.

    With a file and an inventory nothing needs to run.
    """
    basis = await _basis(session, path, inventory)
    start = _start(since, basis.now)
    end = start + timedelta(days=days)
    fleet = _only(basis.fleet, site)
    found = week.week(fleet, start, end, basis.inventories)
    if other:
        changed = _only(spec.parse(_text(other), other), site)
        rows = week.differences(found, week.week(changed, start, end, basis.inventories))
        session.show("PlanDifference", basis.now, rows, weekview.difference(fleet, rows))
        return FINE
    if explain is not None:
        if explain > len(found.shortages):
            raise BadInput((Problem(path="--explain", message=f"there are {len(found.shortages)} conflicts"),))
        shortage = found.shortages[explain - 1]
        session.show("PlanConflict", basis.now, shortage, weekview.explained(fleet, found, explain))
    else:
        session.show("Plan", basis.now, found, weekview.text(fleet, found, basis.source))
    return AT_RISK if found.shortages else FINE


async def _basis(session: Session, path: str, inventory: Path | None) -> Basis:
    given = inventories.read(inventory) if inventory is not None else None
    if path and (given is not None or not (session.address or (session.state / "config.json").exists())):
        return Basis(spec.parse(_text(path), path), given or {}, path, datetime.now(UTC))
    console = await session.console()
    if path:
        fleet, source = spec.parse(_text(path), path), path
    else:
        status = await console.fleet_status(await session.chosen_fleet(console))
        fleet, source = spec.parse_body(status.body), f"revision {status.revision}"
    if given is None:
        asked = await each({s: partial(console.site_status, s) for s in fleet.sites})
        given = {s: v.ledger.inventory for s, v in asked.items() if isinstance(v, SiteStatusView)}
        _warn({s: v for s, v in asked.items() if isinstance(v, Unreachable)})
    return Basis(fleet, given, source, console.now())


def _warn(silent: dict[str, SunfleetError]) -> None:
    for site, error in silent.items():
        click.echo(f"warning: {site}: {error.message}", err=True)


def _start(text: str, now: datetime) -> datetime:
    if not text:
        return datetime.combine(now.astimezone(UTC).date(), time(), UTC)
    return times.ahead(text, "UTC", now, field="--from")


def _only(fleet: FleetSpec, site: str) -> FleetSpec:
    """The fleet at one site. Errors: NotFound."""
    return replace(fleet, sites={s.name: s for s in chosen(fleet, site)})


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput((Problem(path="--file", message=f"{path} cannot be read: {error}"),)) from error
