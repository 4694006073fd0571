"""Commands that run processes: up, worker, demo, version."""

from __future__ import annotations

import asyncio
import functools
import importlib.metadata
import logging
import os
import secrets
import shutil
import signal
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import httpx

from console import worlds
from console.cli.session import DEFAULT_STATE, FINE
from sim import day
from sim.network import MappedTransport, NetworkTable
from sunfleet.errors import BadInput, Problem
from workers import roles, settings
from workers.supervisor import Supervisor


def running(function: Callable[..., Coroutine[Any, Any, int]]) -> Callable[..., int]:
    """A command that runs until it is done or told to stop; its exit code."""

    @functools.wraps(function)
    def command(**given: Any) -> int:
        return asyncio.run(function(**given))

    return command


@click.command()
@click.option(
    "--world",
    "world_file",
    type=click.Path(path_type=Path),
    default=None,
    help="A world.json; default: three simulated sites.",
)
@click.option("--rate", type=float, default=1.0, show_default=True, help="How fast fleet time passes.")
@click.option("--origin", default="", help="Fleet time at the start, RFC 3339; default: now.")
@click.option("--kubernetes", is_flag=True, help="A real control plane at each site (KUBEBUILDER_ASSETS).")
@click.option(
    "--kubeconfig", multiple=True, metavar="SITE=PATH", help="Any cluster as a site; it brings its own nodes."
)
@click.option("--fresh", is_flag=True, help="Forget the state folder first.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_STATE,
    show_default=True,
    envvar="SUNFLEET_STATE",
    help="The folder of the set-up.",
)
@running
async def up(
    state: Path,
    world_file: Path | None,
    rate: float,
    origin: str,
    kubernetes: bool,
    kubeconfig: tuple[str, ...],
    fresh: bool,
) -> int:
    """Run Temporal, a world and the workers, kept alive until you stop it; goes on where it was."""
    if fresh:
        shutil.rmtree(state, ignore_errors=True)
    state.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240  # once, before anything else
    supervisor = Supervisor(state, say=lambda text: click.echo(text, err=True))
    if not (state / "world.json").exists():
        start = datetime.fromisoformat(origin).astimezone(UTC) if origin else datetime.now(UTC)
        spec = worlds.read(world_file) if world_file else worlds.default()
        spec = worlds.placed(
            spec, supervisor.address, rate=rate, fleet_origin=start, real=kubernetes, kubeconfigs=kubeconfig
        )
        (state / "world.json").write_text(spec.model_dump_json(indent=1))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await supervisor.start()
        click.echo(f"ready: Temporal at {supervisor.address} (UI {supervisor.ui}), state in {state}", err=True)
        click.echo("next: sunfleet apply -f examples/follow-the-day.yaml", err=True)
        await stop.wait()
    finally:
        await supervisor.stop()
    return FINE


@click.command()
@click.option("--role", type=click.Choice(["control", "site", "node", "all"]), required=True)
@click.option("--site", default="", help="For the roles site and node.")
@click.option("--node", default="", help="For the role node: its metadata.name.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    default=None,
    help="Settings; default: config.json of the state folder.",
)
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_STATE,
    show_default=True,
    envvar="SUNFLEET_STATE",
    help="The folder of the set-up.",
)
@running
async def worker(state: Path, role: str, site: str, node: str, config: Path | None) -> int:
    """Serve one role's task queues. Ends by SIGTERM, after what is under way."""
    logging.basicConfig(
        level=os.environ.get("SUNFLEET_LOG", "WARNING"), format="%(asctime)s %(levelname)s %(name)s %(message)s"
    )
    found = settings.read(config or state / "config.json")
    _check_role(role, site, node, found)
    client = await roles.connect(found)
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    transport = _transport(found)
    ready = state / "workers.ready"
    ready.unlink(missing_ok=True)
    running: list[asyncio.Task[None]] = []
    if role == "all":
        running.append(asyncio.create_task(roles.run_all(client, found, transport, stop)))
    elif role == "control":
        running.append(asyncio.create_task(roles.run_control(client, found, transport, stop)))
    elif role == "site":
        running.append(
            asyncio.create_task(
                roles.run_site(client, site, found.sites[site], found, transport, stop, nodes_too=False)
            )
        )
    else:
        disk = settings.node_disk(found.sites.get(site, settings.SiteSettings()), node)
        running.append(asyncio.create_task(roles.run_node(client, site, node, disk, found, stop)))
    if state.exists():  # noqa: ASYNC240  # once, when all is up
        ready.write_text(str(os.getpid()))
    await asyncio.gather(*running)
    return FINE


def _check_role(role: str, site: str, node: str, found: settings.Settings) -> None:
    problems = []
    if role in ("site", "node") and not site:
        problems.append(Problem(path="--site", message=f"the role {role} needs it"))
    if role == "node" and not node:
        problems.append(Problem(path="--node", message="the role node needs it"))
    if role == "site" and site and site not in found.sites:
        problems.append(
            Problem(
                path="--site", message=f"the settings know no site {site}", hint=f"known are: {', '.join(found.sites)}"
            )
        )
    if problems:
        raise BadInput(tuple(problems))


def _transport(found: settings.Settings) -> roles.Transport:
    """The simulated network when there is one, else the real one."""
    if not found.network:
        return None
    table = NetworkTable(Path(found.network))

    def make() -> httpx.AsyncBaseTransport:
        return MappedTransport(table)

    return make


@click.command()
def version() -> None:
    """Print the version."""
    click.echo(importlib.metadata.version("sunfleet"))


@click.command()
@click.option("--seed", type=int, default=None, help="Draws hours, counts and arrivals; default: a new one.")
@click.option("--rate", type=float, default=day.RATE, show_default=True, help="How fast fleet time passes.")
@click.option("--vllm", type=click.Path(path_type=Path), default=None, help="A Python with vLLM: the other demo.")
@click.option(
    "--state",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_STATE,
    show_default=True,
    envvar="SUNFLEET_STATE",
    help="The folder of the set-up.",
)
@running
async def demo(state: Path, seed: int | None, rate: float, vllm: Path | None) -> int:
    """A follow-the-sun day in minutes on simulated sites, judged; or a real vLLM on a real control plane."""
    if vllm is not None:
        from console.vllmdemo import VllmDemo  # only who runs it needs a control plane

        return await VllmDemo(state / "vllm", vllm).run()
    from console.demo import Demo  # the world's parts are large: only who runs it loads them

    return await Demo(state / "demo", seed if seed is not None else secrets.randbelow(10**6), rate).run()
