"""Commands on the whole fleet: `apply`, `rollback`, `schema`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from console import changes, times
from console.cli.session import AT_RISK, FINE, Session, requesting
from console.facade import Console
from sunfleet import spec
from sunfleet.errors import BadInput, NotFound, Problem
from sunfleet.messages import FleetAccepted, Rollback, SetFleet
from sunfleet.model import FleetSpec

SOONEST = 3


@click.command()
@click.option("-f", "--file", "path", required=True, help="The fleet file; - is standard input.")
@click.option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@click.option("--expect-revision", type=click.IntRange(min=0), help="Refuse when this is not the newest revision.")
@click.option("--allow-removals", is_flag=True, help="Also when it takes much away.")
@requesting
async def apply(session: Session, path: str, dry_run: bool, expect_revision: int | None, allow_removals: bool) -> int:
    """Make a fleet file the newest revision. The same file again changes nothing."""
    text, name = _read(path)
    declared, body = spec.parse(text, name), spec.body(text, name)
    console = await session.console()
    if dry_run:
        return await _dry_run(session, console, declared, allow_removals)
    request = SetFleet(
        **session.request(console.clock), body=body, expect=expect_revision, allow_removals=allow_removals
    )
    accepted = await console.apply(declared.name, request)
    session.show("FleetAccepted", console.now(), accepted, _accepted(declared, accepted, console))
    return FINE


async def _dry_run(session: Session, console: Console, declared: FleetSpec, allow_removals: bool) -> int:
    old, revision = None, 0
    try:
        status = await console.fleet_status(declared.name)
    except NotFound:
        pass  # it does not run yet
    else:
        old, revision = (spec.parse_body(status.body) if status.body else None), status.revision
    found = changes.preview(old, declared, revision, console.now())
    session.show("FleetPreview", console.now(), found, changes.text(found, declared))
    return AT_RISK if found.refused and not allow_removals else FINE


def _accepted(fleet: FleetSpec, accepted: FleetAccepted, console: Console) -> str:
    if not accepted.changed:
        return f"{fleet.name}: no changes, revision {accepted.revision} stays"
    lines = [f"{fleet.name}: revision {accepted.revision} accepted; {len(fleet.sites)} sites take it over now"]
    for opening in changes.openings(fleet, console.now())[:SOONEST]:
        at = times.both(opening.at, fleet.sites[opening.site].zone)
        lines.append(f"next: {opening.site}/{opening.pool} {opening.hot} hot by {at}")
    return "\n".join(lines)


def _read(path: str) -> tuple[str, str]:
    """A file's text and its name. Errors: BadInput."""
    try:
        return (sys.stdin.read(), "<stdin>") if path == "-" else (Path(path).read_text(encoding="utf-8"), path)
    except OSError as error:
        raise BadInput((Problem(path=path, message=f"cannot be read: {error.strerror}"),)) from error
    except UnicodeDecodeError as error:
        raise BadInput((Problem(path=path, message="is not UTF-8"),)) from error


@click.command()
@click.option("--to", "to", type=click.IntRange(min=1), help="Which revision; the one before when left out.")
@click.option("--allow-removals", is_flag=True, help="Also when it takes much away.")
@requesting
async def rollback(session: Session, to: int | None, allow_removals: bool) -> int:
    """Make an earlier revision the newest again."""
    console = await session.console()
    fleet = await session.chosen_fleet(console)
    request = Rollback(**session.request(console.clock), to=to, allow_removals=allow_removals)
    accepted = await console.rollback(fleet, request)
    what = f"revision {accepted.revision} accepted" if accepted.changed else f"no changes, {accepted.revision} stays"
    session.show("FleetAccepted", console.now(), accepted, f"{fleet}: {what}")
    return FINE


@click.command()
def schema() -> int:
    """The JSON schema of the fleet file, for editors."""
    click.echo(json.dumps(spec.json_schema(), indent=2, ensure_ascii=False))
    return FINE
