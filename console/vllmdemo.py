"""`make demo-vllm`: one real vLLM engine on a real Kubernetes control plane, from nothing to proven and back.

The control plane is real (KUBEBUILDER_ASSETS), the engine is real (CPU mode, a tiny random Llama made here); the node's
GPUs are simulated, and the Hub. Twice: with tensor parallel 1, then 2.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import click

from console import worlds
from console.facade import Console, Place
from sim import controlplane
from sim.world import NodePart, RepoPart, SitePart, WorldSpec
from sunfleet import spec
from sunfleet.errors import BadInput, Missing, Problem, SunfleetError
from sunfleet.messages import DeploymentStatusView, Prewarm, Resume, SetFleet, Unload
from sunfleet.residency import Phase
from workers import settings
from workers.supervisor import Supervisor

IMAGE = "vllm/vllm-openai-cpu"
DIGEST = "sha256:" + "0" * 64
REVISION = "4" * 40
PATIENCE = 300.0  # real seconds for one way up or down: the engine itself takes some thirty
STEPS = (Phase.STAGING, Phase.STARTING, Phase.LOADING, Phase.PROVING, Phase.SERVING)


def fleet_body(tensor: int) -> dict[str, object]:
    """A fleet of one real engine."""
    return {
        "apiVersion": "sunfleet.dev/v1alpha1",
        "kind": "Fleet",
        "metadata": {"name": "real"},
        "sites": {
            "lab": {
                "zone": "Europe/Zurich",
                "endpoint": "https://lab.infer.example.net/{deployment}/v1",
                "gpus": {"gpu": {"product": "NVIDIA-H200"}},
            }
        },
        "engines": {"vllm": {"image": f"{IMAGE}@{DIGEST}", "device": "CPU", "key": {"secret": "sunfleet-engine-key"}}},
        "models": {
            "tiny": {
                "source": f"hf://sunfleet/tiny-llama@{REVISION}",
                "servedName": "tiny-llama",
                "gpu": "gpu",
                "parallel": {"tensor": tensor},
                "tuning": {"maxModelLen": 512},
            }
        },
        "pools": {"tiny": {"model": "tiny", "sites": ["lab"]}},
    }


@dataclass(slots=True)
class VllmDemo:
    """One run over a state folder, with the Python that has vLLM."""

    state: Path
    python: Path
    say: Callable[[str], None] = click.echo

    async def run(self) -> int:
        """Up and down, twice; 0 when every step was seen. Errors: Missing for a part that is not here."""
        self._check_parts()
        shutil.rmtree(self.state, ignore_errors=True)
        self.state.mkdir(parents=True)
        supervisor = Supervisor(self.state)
        self._write_world(supervisor)
        try:
            await supervisor.start()
            self.say("up: Temporal, a real control plane with one node of 4 simulated GPUs, and the workers")
            found = settings.read(self.state / "config.json")
            console = await Console.connect(found.temporal.address, found.temporal.namespace, found.fleet_clock)
            for tensor in (1, 2):
                await self._round(console, tensor)
        finally:
            await supervisor.stop()
        self.say("real vLLM on a real control plane: from nothing to proven and back, tensor parallel 1 and 2")
        return 0

    def _check_parts(self) -> None:
        if why := controlplane.missing():
            raise Missing(why, hint="setup-envtest, or a Kubernetes server release, has these programs")
        if not self.python.exists():
            raise BadInput((Problem(path="--vllm", message=f"{self.python} is not there", hint="make vllm"),))

    def _write_world(self, supervisor: Supervisor) -> None:
        engine = [str(self.python.absolute()), "-m", "vllm.entrypoints.openai.api_server", "--model"]
        world = WorldSpec(
            sites={
                "lab": SitePart(
                    endpoint="https://lab.infer.example.net/{deployment}/v1",
                    kubernetes="real",
                    nodes=[NodePart(name="lab-gpu-01", gpus=4)],
                )
            },
            repos=[RepoPart(name="sunfleet/tiny-llama", revision=REVISION, kind="tiny")],
            images={IMAGE: engine},
            gateway_lag_seconds=1.0,
        )
        world = worlds.placed(world, supervisor.address, rate=1.0, fleet_origin=datetime.now(UTC))
        (self.state / "world.json").write_text(world.model_dump_json(indent=1))

    async def _round(self, console: Console, tensor: int) -> None:
        place = Place(site="lab", namespace="llm", model="tiny")
        body = fleet_body(tensor)
        spec.parse_body(body)
        await console.apply("real", SetFleet(request_id=f"vllm-{tensor}", author="demo", body=body))
        await self._until(console, place, "declared", lambda v: v.served_name == "tiny-llama")
        await self._spec_read(console, place, rounds=tensor)
        if tensor > 1:
            await console.resume(place, Resume(request_id="vllm-resume", author="demo"))
        asked = Prewarm(request_id=f"vllm-prewarm-{tensor}", author="demo", duration=timedelta(hours=1))
        answer = await self._prewarm(console, place, asked)
        self.say(f"tensor parallel {tensor}: pre-warm → {answer}")
        for step in STEPS:
            seen = await self._until(console, place, step, lambda v, s=step: _reached(v, s))  # type: ignore[misc]
            self.say(f"  {seen}")
        view = await console.deployment_status(place)
        self.say(f"  routed to {view.base_url}, {view.gpus} GPUs held")
        if view.gpus != tensor:
            raise Missing(f"{view.gpus} GPUs are held for tensor parallel {tensor}")
        await console.unload(place, Unload(request_id=f"vllm-unload-{tensor}", author="demo"))
        self.say("  " + await self._until(console, place, "unloaded", lambda v: not v.replicas))
        held = (await console.site_status("lab")).held
        if any(held.values()):
            raise Missing(f"GPUs are still held: {held}")
        self.say("  GPUs free")
        findings = await console.verify("lab", "llm", f"vllm-{tensor}")
        if findings:
            raise Missing("; ".join(f.message for f in findings))

    async def _spec_read(self, console: Console, place: Place, rounds: int) -> None:
        """Until the deployment has read this round's spec: the object is written and watched in its own time."""
        for _ in range(int(PATIENCE * 5)):
            if sum(1 for r in await console.reasons(place) if r.code == "Spec") >= rounds:
                return
            await asyncio.sleep(0.2)
        raise Missing("the new spec was not read")

    async def _prewarm(self, console: Console, place: Place, asked: Prewarm) -> str:
        answer = await console.prewarm(place, asked)
        return f"{answer.state}, {answer.hot} of {answer.wanted} hot"

    async def _until(
        self, console: Console, place: Place, name: str, reached: Callable[[DeploymentStatusView], bool]
    ) -> str:
        """Wait for a step; how long it took. Errors: Missing when it does not come, with why."""
        loop = asyncio.get_running_loop()
        began, last = loop.time(), ""
        while loop.time() - began < PATIENCE:
            try:
                view = await console.deployment_status(place)
            except SunfleetError as error:
                last = error.message
            else:
                last = view.message
                if reached(view):
                    return f"{name} after {loop.time() - began:.1f} s"
            await asyncio.sleep(0.2)
        raise Missing(f"{name} was not reached in {PATIENCE:.0f} s: {last}")


def _reached(view: DeploymentStatusView, step: Phase) -> bool:
    """Whether some replica is at that step, or further."""
    order = {phase: at for at, phase in enumerate(STEPS)}
    return any(order.get(r.phase, -1) >= order[step] for r in view.replicas if not r.leaving)
