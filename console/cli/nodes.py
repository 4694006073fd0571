"""Commands on nodes: `take-back`."""

from __future__ import annotations

import click

from console import times
from console.cli.session import FINE, Session, requesting
from console.gathering import site_of
from sunfleet.errors import BadInput, Problem
from sunfleet.messages import CancelTakeBack, TakeBack


@click.command("take-back")
@click.argument("site")
@click.argument("node")
@click.option("--by", help="When its owner has it back: RFC 3339, or HH:MM at the site.")
@click.option("--cancel", is_flag=True, help="The owner changed their mind.")
@requesting
async def take_back(session: Session, site: str, node: str, by: str | None, cancel: bool) -> int:
    """Give NODE at SITE back to its owner by a deadline: what runs there moves, if there is room."""
    if cancel == bool(by):
        problem = Problem(path="--by", message="say either --by or --cancel", hint="such as --by 18:00")
        raise BadInput((problem,))
    console = await session.console()
    zone = site_of(await session.declared(console), site).zone
    common = session.request(console.clock)
    if cancel or by is None:
        answer = await console.cancel_take_back(site, CancelTakeBack(**common, node=node))
        text = f"{site}/{answer.node}: {answer.message}"
    else:
        deadline = times.ahead(by, zone, console.now(), field="--by")
        answer = await console.take_back(site, TakeBack(**common, node=node, by=deadline))
        text = f"{site}/{answer.node}: closed; {answer.holds} places leave by {times.both(answer.by, zone)}"
    session.show("TakeBackAccepted", console.now(), answer, text)
    return FINE
