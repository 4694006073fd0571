"""What every command shares: which set-up it talks to, who asks, and how it answers.

stdout is data, stderr is talk. A command is an async function of a `Session`; what it returns is the exit code.
"""

from __future__ import annotations

import asyncio
import functools
import getpass
import logging
import os
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
from temporalio.runtime import LogForwardingConfig, LoggingConfig, Runtime, TelemetryConfig

from console.document import document
from console.facade import Console, Place
from console.gathering import site_of
from sunfleet import names, spec
from sunfleet.clock import REAL_TIME, FleetClock
from sunfleet.errors import NotFound
from sunfleet.model import FleetSpec, SiteSpec
from workers import settings

FINE, BROKEN, BAD_INPUT, AT_RISK, UNREACHABLE = 0, 1, 2, 3, 4
DEFAULT_STATE = ".sunfleet"
REQUEST_LIFE = timedelta(minutes=10)  # real time: a request that arrives later is refused


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """The options that commands have in common."""

    state: Path
    address: str
    namespace: str
    fleet: str
    author: str
    why: str
    request_id: str
    as_json: bool

    async def console(self) -> Console:
        """Connect: to the named server, else to the one of the state folder, else as the environment says.

        Errors: Unreachable; BadInput when the state folder is damaged.
        """
        config = self.state / "config.json"
        clock, address, namespace = REAL_TIME, self.address, self.namespace
        if config.exists():
            found = settings.read(config)
            clock = found.fleet_clock
            address = address or found.temporal.address
            namespace = namespace or (found.temporal.namespace if found.temporal.address else "")
        return await Console.connect(address, namespace, clock, runtime=_runtime())

    async def chosen_fleet(self, console: Console) -> str:
        """The fleet that was named, or the only one. Errors: NotFound, Refused."""
        return self.fleet or await console.only_fleet()

    async def declared(self, console: Console) -> FleetSpec:
        """The newest file of the chosen fleet."""
        return spec.parse_body((await console.fleet_status(await self.chosen_fleet(console))).body)

    def request(self, clock: FleetClock) -> dict[str, Any]:
        """What every request carries: who, why, an id, and until when it is worth doing."""
        return {
            "request_id": self.request_id or f"cli-{uuid.uuid4().hex[:16]}",
            "author": self.author,
            "why": self.why,
            "not_after": clock.at(datetime.now(UTC) + REQUEST_LIFE),
        }

    def show(self, kind: str, observed_at: datetime, data: object, text: str) -> None:
        """The answer: one JSON document, or text for people."""
        click.echo(document(kind, observed_at, data) if self.as_json else text)


@functools.cache
def _runtime() -> Runtime:
    """The SDK's core writes its log to stdout unless told otherwise: stdout is data here."""
    forward = LogForwardingConfig(logger=logging.getLogger("temporalio.core"))
    return Runtime(telemetry=TelemetryConfig(logging=LoggingConfig(filter="ERROR", forwarding=forward)))


def login() -> str:
    """Who asks, unless --author says so."""
    with suppress(OSError, KeyError):
        return os.environ.get("USER") or getpass.getuser()
    return ""


def place_of(fleet: FleetSpec, site: str, model: str) -> tuple[SiteSpec, Place]:
    """Whom a command is for. Errors: NotFound for the site; the model may be one that people made by hand."""
    found = site_of(fleet, site)
    return found, Place(site=site, namespace=found.namespace, model=model)


def no_such_model(fleet: FleetSpec, place: Place) -> NotFound:
    """The error for a model that nobody knows there, with what might be meant."""
    here = [m.name for m in fleet.models_at(place.site)]
    near = names.nearest(place.model, here)
    hint = f"try {near}" if near else f"try {' or '.join(here)}" if here else "the site has no models"
    return NotFound(f"no such model {place.model} at {place.site}", hint=hint)


def _options(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options, in the order of the help text from last to first."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="One JSON document instead of text."),
        click.option("--author", default=login, show_default="the login", help="Who asks; it is recorded."),
        click.option("--fleet", default="", help="Which fleet, when there are several."),
        click.option("--namespace", default="", help="The Temporal namespace."),
        click.option("--address", default="", help="The Temporal server, such as localhost:7233."),
        click.option(
            "--state",
            type=click.Path(path_type=Path, file_okay=False),
            default=DEFAULT_STATE,
            show_default=True,
            envvar="SUNFLEET_STATE",
            help="The folder of a set-up that `sunfleet up` runs.",
        ),
    ):
        function = option(function)
    return function


def asking(function: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """A command that asks: gets a Session, returns an exit code."""

    @_options
    @functools.wraps(function)
    def command(
        *,
        state: Path,
        address: str,
        namespace: str,
        fleet: str,
        author: str,
        as_json: bool,
        why: str = "",
        request_id: str = "",
        **rest: Any,
    ) -> int:
        session = Session(
            state=state,
            address=address,
            namespace=namespace,
            fleet=fleet,
            author=author,
            why=why,
            request_id=request_id,
            as_json=as_json,
        )

        async def go() -> int:
            return await function(session, **rest)

        return asyncio.run(go())

    return command


def requesting(function: Callable[..., Awaitable[int]]) -> Callable[..., int]:
    """A command that changes something: with --why and --request-id as well."""
    command: Callable[..., Any] = asking(function)
    for option in (
        click.option("--request-id", default="", help="Repeat a request: one with the same id is done once."),
        click.option("--why", default="", help="Why; it is recorded."),
    ):
        command = option(command)
    return command
