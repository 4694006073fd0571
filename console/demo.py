"""`make demo`: a business day in minutes, on real workflows, with accidents, and a judge at the end."""

from __future__ import annotations

import asyncio
import functools
import shutil
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import click
import yaml

from console import worlds
from console.facade import Console, Place, each
from sim import day
from sim.picture import Observation, draw
from sunfleet import calendars, spec
from sunfleet.errors import SunfleetError, Unreachable
from sunfleet.messages import DeploymentStatusView, NodeClear, Prewarm, SetFleet, TakeBack
from sunfleet.model import FleetSpec
from workers import settings
from workers.supervisor import Supervisor

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "follow-the-day.yaml"
LOOK_EVERY = 1.0  # real seconds


@dataclass(slots=True)
class Demo:
    """One run over a state folder."""

    state: Path
    seed: int
    rate: float = day.RATE
    until: datetime = day.JUDGED_UNTIL
    say: Callable[[str], None] = click.echo
    _body: dict[str, Any] = field(init=False)
    _fleet: FleetSpec = field(init=False)
    _facts: day.Facts = field(default_factory=day.Facts)
    _seen: list[Observation] = field(default_factory=list)
    _all_hot: bool = False
    _problems: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._body = day.draw(spec.body(EXAMPLE.read_text(), str(EXAMPLE)), self.seed)
        self._fleet = spec.parse_body(self._body)

    @property
    def _fleet_file(self) -> Path:
        return self.state / "fleet.yaml"

    async def run(self) -> int:
        """The whole day; 0 when every promise was kept."""
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
        supervisor = Supervisor(self.state)
        self._fleet_file.write_text(yaml.safe_dump(self._body, sort_keys=False))
        self.say(f"seed {self.seed} (the same day again: --seed {self.seed}), {self.rate:.0f} times as fast as life")
        self.say(f"logs and state in {self.state}; the fleet, drawn by the seed, in {self._fleet_file}")
        for line in day.described(self._fleet):
            self.say(f"  {line}")
        self._write_world(supervisor)
        try:
            await supervisor.start()
            console = await self._begin()
            await self._live(console, supervisor)
            return await self._judge(console)
        finally:
            await supervisor.stop()

    def _write_world(self, supervisor: Supervisor) -> None:
        """The clock starts when the world does, not while Temporal is still coming up."""
        world = worlds.placed(worlds.default(), supervisor.address, rate=self.rate, fleet_origin=day.ORIGIN)
        clock = world.clock
        if clock is not None:
            clock = clock.model_copy(update={"real_origin": clock.real_origin + timedelta(seconds=START_UP)})
        world = world.model_copy(update={"clock": clock, "load": day.users(self._fleet), "seed": self.seed})
        (self.state / "world.json").write_text(world.model_dump_json(indent=1))

    async def _begin(self) -> Console:
        """Apply the fleet file."""
        found = settings.read(self.state / "config.json")
        console = await Console.connect(found.temporal.address, found.temporal.namespace, found.fleet_clock)
        accepted = await console.apply(
            "day", SetFleet(request_id="demo-apply", author="demo", why="the demo's day", body=self._body)
        )
        self.say(f"applied {self._fleet_file.name}, revision {accepted.revision}")
        return console

    async def _live(self, console: Console, supervisor: Supervisor) -> None:
        """Watch the day pass, and let things happen at their hours."""
        events: list[tuple[timedelta, str, Callable[[], Awaitable[str]]]] = [
            (day.TAKE_BACK_AT, "take-back", lambda: self._take_back(console)),
            (day.KILL_WORKERS_AT, "SIGKILL workers", lambda: self._kill(supervisor, "workers")),
            (day.KILL_TEMPORAL_AT, "SIGKILL Temporal", lambda: self._kill(supervisor, "temporal")),
            (day.PREWARM_AT, "pre-warm", lambda: self._prewarm(console)),
        ]
        await self._first_openings(console)
        running: list[asyncio.Task[str]] = []
        while (now := console.now()) < self.until:
            while events and now >= day.ORIGIN + events[0][0]:
                _, name, act = events.pop(0)
                running.append(asyncio.create_task(self._act(name, act)))
            await self._look(console, now)
            await asyncio.sleep(LOOK_EVERY)
        for task in running:
            await task

    async def _first_openings(self, console: Console) -> None:
        """The clock starts in the middle of somebody's window; the day that is judged begins once that is hot."""
        while (now := console.now()) < day.ORIGIN + day.FIRST_OPENINGS:
            await self._look(console, now)
            if self._all_hot:
                self._facts.start = now + timedelta(minutes=10)  # routes take effect with a lag
                self.say(f"      ** the judged day begins: {now:%a %H:%M} UTC")
                return
            await asyncio.sleep(LOOK_EVERY)
        self._problems.append("what was open at the start did not become hot")

    async def _act(self, name: str, act: Callable[[], Awaitable[str]]) -> str:
        try:
            said = await act()
        except SunfleetError as error:
            said = f"failed: {error.message}"
            self._problems.append(f"{name} {said}")
        self.say(f"      ** {name}: {said}")
        return said

    async def _look(self, console: Console, now: datetime) -> None:
        """One line with every site, and an observation per model for the picture."""
        calls = {str(p): functools.partial(console.deployment_status, p) for p in self._places}
        try:
            views = await asyncio.wait_for(each(calls), 5)
        except TimeoutError:
            return
        cells = []
        known = [v for v in views.values() if isinstance(v, DeploymentStatusView)]
        self._all_hot = len(known) == len(self._places) and all(v.hot >= v.target.hot for v in known)
        self._all_hot = self._all_hot and any(v.hot for v in known)
        for name, site in self._fleet.sites.items():
            parts = []
            for place in [p for p in self._places if p.site == name]:
                view = views[str(place)]
                if isinstance(view, SunfleetError):
                    parts.append(f"{place.model} ?  ")
                    continue
                parts.append(f"{place.model} {_bar(view):<3}")
                self._seen.append(Observation(at=now, row=f"{name}/{place.model}", rung=_rung(view)))
            cells.append(f"{name} {calendars.local(now, site.zone):%H:%M} {' '.join(parts)}")
        self.say(f"{now:%a %H:%M}  " + "│ ".join(cells))

    @property
    def _places(self) -> tuple[Place, ...]:
        return tuple(
            Place(site=name, namespace=site.namespace, model=model.name)
            for name, site in self._fleet.sites.items()
            for model in self._fleet.models_at(name)
        )

    async def _take_back(self, console: Console) -> str:
        by = day.ORIGIN + day.TAKE_BACK_BY
        request = TakeBack(
            request_id="demo-take-back", author="owner", why="sold for the afternoon", node=day.TAKEN_NODE, by=by
        )
        accepted = await console.take_back("tokyo", request)
        return f"tokyo/{day.TAKEN_NODE} goes back by {by:%H:%M} UTC, {accepted.holds} replicas stand on it"

    async def _prewarm(self, console: Console) -> str:
        """Outside the windows; only what was promised is judged."""
        due = day.ORIGIN + day.PREWARM_READY
        place = Place(site=day.PREWARMED, namespace="llm", model="chat-70b")
        request = Prewarm(
            request_id="demo-prewarm", author="gateway", why="evening launch", ready_by=due, duration=day.PREWARM_FOR
        )
        answer = await console.prewarm(place, request)
        if answer.eta is None or answer.eta <= due:
            self._facts.promise(day.PREWARMED, "chat-70b", due, due + day.PREWARM_FOR, "pre-warm")
        return f"{day.PREWARMED}/chat-70b by {due:%H:%M} UTC for 1 h: {answer.state}"

    async def _kill(self, supervisor: Supervisor, name: str) -> str:
        supervisor.kill(name)
        began = asyncio.get_running_loop().time()
        await supervisor.recovered(name)
        return f"{name} came back after {asyncio.get_running_loop().time() - began:.1f} s"

    async def _judge(self, console: Console) -> int:
        """The picture, the judge's table, the promises."""
        plan = self.state / "plan.json"
        self._facts.write(plan, console.clock, self.until)
        self.say("")
        self.say(draw(self._seen, day.ORIGIN, self.until))
        self.say("")
        broken = await self._take_back_kept(console)
        for name, site in self._fleet.sites.items():
            found = await console.verify(name, site.namespace, f"demo-{name}")
            broken += [f"{f.promise} {name}: {f.message}" for f in found]
        code = await _run_judge(self.state, plan, self.say)
        for problem in [*self._problems, *broken]:
            self.say(f"BROKEN  {problem}")
        self.say("promises of the control plane (S1, S3, S4, S5, S6, take-back): " + ("broken" if broken else "kept"))
        return 1 if code or broken or self._problems else 0

    async def _take_back_kept(self, console: Console) -> list[str]:
        """The node was clear by its deadline."""
        reports: tuple[NodeClear, ...] = (await console.site_status("tokyo")).reports
        for report in reports:
            self.say(f"take-back: {report.node} {report.message}")
            return [] if report.on_time else [f"{report.node} was late: {report.message}"]
        return [f"{day.TAKEN_NODE} was never reported clear"]


START_UP = 6.0  # real seconds that the processes take to come up


def _bar(view: DeploymentStatusView) -> str:
    """One block per replica, the warmest first."""
    idle = max(0, view.staged - view.hot - view.opening)
    return "█" * view.hot + "▓" * view.opening + "░" * idle or "·"


def _rung(view: DeploymentStatusView) -> str:
    if view.hot:
        return "hot"
    if view.opening:
        return "opening"
    return "staged" if view.staged else "cold"


async def _run_judge(state: Path, plan: Path, say: Callable[[str], None]) -> int:
    """The judge is another process; it sees logs and the plan, nothing else."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "sim.judge",
        "--fleet",
        str(state / "fleet.yaml"),
        "--plan",
        str(plan),
        "--gateway-log",
        str(state / "logs" / "gateway.jsonl"),
        "--engine-logs",
        str(state / "logs" / "engines"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    say(out.decode())
    if process.returncode not in (0, 1):
        raise Unreachable("the judge itself failed")
    return process.returncode
