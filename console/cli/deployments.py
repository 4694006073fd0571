"""Commands on one model at one site. Each answers at once with what is so, what will be, and when."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Any

import click

from console import times
from console.cli.session import AT_RISK, FINE, Session, no_such_model, place_of, requesting
from console.facade import Console, Place
from sunfleet.errors import NotFound
from sunfleet.messages import Answer, Health, Pause, Pin, Prewarm, Resume, Unload, Unpin
from sunfleet.model import SiteSpec
from sunfleet.warmth import Warmth

STUCK = (Health.BLOCKED, Health.WAITING)
Send = Callable[[Console, SiteSpec, Place, dict[str, Any]], Awaitable[Answer]]
warmth_option = click.option(
    "--warmth", type=click.Choice(["hot", "staged"]), default="hot", show_default=True, help="On which rung."
)
count_option = click.option("--count", type=click.IntRange(1, 1000), default=1, show_default=True, help="Replicas.")
site_option = click.option("--site", required=True, help="At which site.")


def worries(answer: Answer, deadline: datetime | None) -> bool:
    """Exit code 3: it is stuck, or the forecast is past the deadline that was asked for.

    Without a deadline an opening takes as long as it takes: *now* is always late, and no promise of ours.
    """
    late = deadline is not None and answer.eta is not None and answer.eta > deadline
    return answer.state in STUCK or late


async def _send(session: Session, model: str, site: str, send: Send, ready_by: str | None = None) -> int:
    """Find the place, ask, and show the answer. `ready_by` is the deadline as it was written, if there is one."""
    console = await session.console()
    fleet = await session.declared(console)
    found, place = place_of(fleet, site, model)
    common = session.request(console.clock)
    deadline = times.ahead(ready_by, found.zone, console.now(), field="--ready-by") if ready_by else None
    try:
        await console.deployment_status(place)  # an unknown one is told apart from an unknown pin
    except NotFound as error:
        raise no_such_model(fleet, place) from error
    answer = await send(console, found, place, common)
    session.show("Answer", console.now(), answer, text(place, found, answer, console.now()))
    return AT_RISK if worries(answer, deadline) else FINE


def text(place: Place, site: SiteSpec, answer: Answer, now: datetime) -> str:
    """An answer for people."""
    lines = [f"{place.site}/{place.model}: {answer.state}, {answer.hot} of {answer.wanted} hot"]
    if answer.eta is not None:
        lines.append(f"forecast: {times.both(answer.eta, site.zone)}, in {times.words(answer.eta - now)} (P95)")
    if answer.message:
        lines.append(f"now: {answer.message}")
    if answer.pin:
        lines.append(f"pin: {answer.pin}; end it with: sunfleet unpin {place.model} --site {place.site}")
    return "\n".join(lines)


@click.command()
@click.argument("model")
@site_option
@click.option("--ready-by", help="When it must serve: RFC 3339, or HH:MM at the site. Now when left out.")
@click.option("--for", "length", default="1h", show_default=True, help="How long, such as 45m or 2h.")
@count_option
@warmth_option
@requesting
async def prewarm(
    session: Session, model: str, site: str, ready_by: str | None, length: str, count: int, warmth: str
) -> int:
    """Make replicas of MODEL hot by a time, for a while."""
    duration = times.span(length, field="--for")

    async def send(console: Console, at: SiteSpec, place: Place, common: dict[str, Any]) -> Answer:
        by = times.ahead(ready_by, at.zone, console.now(), field="--ready-by") if ready_by else None
        request = Prewarm(**common, count=count, warmth=Warmth(warmth), ready_by=by, duration=duration)
        return await console.prewarm(place, request)

    return await _send(session, model, site, send, ready_by)


@click.command()
@click.argument("model")
@site_option
@count_option
@warmth_option
@requesting
async def pin(session: Session, model: str, site: str, count: int, warmth: str) -> int:
    """Keep replicas of MODEL until they are unpinned."""

    async def send(console: Console, at: SiteSpec, place: Place, common: dict[str, Any]) -> Answer:
        return await console.pin(place, Pin(**common, count=count, warmth=Warmth(warmth)))

    return await _send(session, model, site, send)


@click.command()
@click.argument("model")
@site_option
@click.option("--pin", "name", help="Which pin, by the id that `pin` answered; all of them when left out.")
@requesting
async def unpin(session: Session, model: str, site: str, name: str | None) -> int:
    """Let MODEL follow its windows again."""

    async def send(console: Console, at: SiteSpec, place: Place, common: dict[str, Any]) -> Answer:
        return await console.unpin(place, Unpin(**common, pin=name))

    return await _send(session, model, site, send)


@click.command()
@click.argument("model")
@site_option
@click.option("--until", help="Until when: RFC 3339, or HH:MM at the site. The next opening when left out.")
@click.option("--to", "warmth", type=click.Choice(["cold", "staged"]), default="cold", show_default=True)
@requesting
async def unload(session: Session, model: str, site: str, until: str | None, warmth: str) -> int:
    """Take MODEL off its GPUs; this beats every window, pre-warm and pin."""

    async def send(console: Console, at: SiteSpec, place: Place, common: dict[str, Any]) -> Answer:
        end = times.ahead(until, at.zone, console.now(), field="--until") if until else None
        return await console.unload(place, Unload(**common, until=end, warmth=Warmth(warmth)))

    return await _send(session, model, site, send)


@click.command()
@click.argument("model")
@site_option
@click.option("--until", help="Until when: RFC 3339, or HH:MM at the site. Until `resume` when left out.")
@requesting
async def pause(session: Session, model: str, site: str, until: str | None) -> int:
    """Change nothing of MODEL, both ways. Repair and take-back go on."""

    async def send(console: Console, at: SiteSpec, place: Place, common: dict[str, Any]) -> Answer:
        end = times.ahead(until, at.zone, console.now(), field="--until") if until else None
        return await console.pause(place, Pause(**common, until=end))

    return await _send(session, model, site, send)


@click.command()
@click.argument("model")
@site_option
@requesting
async def resume(session: Session, model: str, site: str) -> int:
    """Let MODEL follow its claims again: ends a pause, and every unload without an end."""

    async def send(console: Console, at: SiteSpec, place: Place, common: dict[str, Any]) -> Answer:
        return await console.resume(place, Resume(**common))

    return await _send(session, model, site, send)
