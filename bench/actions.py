"""What Temporal bills: one opening and one closing of a replica, and minutes in which nothing happens.

    make bench-actions                     (python -m bench.actions [--models N] [--minutes M])

Counted is the server's billing counter (`action`, by type) around each part. The peer is the plain design that
such systems begin with: a workflow per model that looks at its engine every ten seconds (a timer and an activity, two
actions a look); its figure is that arithmetic, per model and minute, beside ours as measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

import httpx
from prometheus_client.parser import text_string_to_metric_families
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from sim.processes import free_port
from sunfleet.messages import Prewarm, Unload
from tests.workflows.worlds import Rig, fleet, rig
from workers.supervisor import temporal_program

POLL_EACH = 10.0  # seconds; the peer
SWEEP_EACH = 600.0  # seconds, as a site's worker sweeps in production
QUERIES = "grpc_QueryWorkflow"


async def actions(url: str) -> Counter[str]:
    """The billing counter by type."""
    async with httpx.AsyncClient() as http:
        text = (await http.get(url)).text
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name in ("action", "action_total"):
                found[sample.labels.get("action_type", "")] += int(sample.value)
    return found


async def main(models: int, minutes: float) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/metrics"
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=temporal_program(),
        data_converter=pydantic_data_converter,
        dev_server_log_level="error",
        dev_server_extra_args=["--metrics-port", str(port)],
    ) as server:
        with tempfile.TemporaryDirectory() as folder:
            async with rig(server, Path(folder), nodes=4, gpus=64, rate=1.0, sweep_seconds=SWEEP_EACH) as home:
                await _measure(home, url, models, minutes)


async def _measure(home: Rig, url: str, models: int, minutes: float) -> None:
    names = tuple(f"m{i:03d}" for i in range(models + 1))  # one to open and close, the others to stay hot
    await home.apply(fleet(home.fleet, home.site, models=names))
    for name in names:
        await home.until(lambda v: bool(v.served_name), name, 300)
    await asyncio.sleep(5)
    before = await actions(url)
    await home.console.prewarm(home.place(names[0]), Prewarm(request_id="one", author="b", duration=timedelta(days=6)))
    await home.hot(1, names[0])
    await asyncio.sleep(5)
    opened = _without_ours(await actions(url) - before)
    before = await actions(url)
    await home.console.unload(home.place(names[0]), Unload(request_id="off", author="b"))
    await home.gone(names[0])
    await asyncio.sleep(5)
    closed = _without_ours(await actions(url) - before)
    for name in names[1:]:
        asked = Prewarm(request_id=f"p-{name}", author="b", duration=timedelta(days=6))
        await home.console.prewarm(home.place(name), asked)
    for name in names[1:]:
        await home.hot(1, name)
    await asyncio.sleep(20)
    before = await actions(url)
    await asyncio.sleep(minutes * 60)
    quiet = await actions(url) - before
    _print(models, minutes, opened, closed, quiet)


def _without_ours(found: Counter[str]) -> Counter[str]:
    """Without the queries by which this measure itself waits; in the quiet minutes it asks nothing."""
    return Counter({kind: count for kind, count in found.items() if kind != QUERIES})


def _print(hot: int, minutes: float, opened: Counter[str], closed: Counter[str], quiet: Counter[str]) -> None:
    print(f"{'':<46}{'opening':>9}{'closing':>9}{f'{minutes:g} quiet min':>16}")
    for kind in sorted({*opened, *closed, *quiet}):
        print(f"{kind:<46}{opened[kind]:>9}{closed[kind]:>9}{quiet[kind]:>16}")
    ours = quiet.total() / hot / minutes
    peer = 2 * 60 / POLL_EACH
    print(f"{'billed actions':<46}{opened.total():>9}{closed.total():>9}{quiet.total():>16}")
    print(f"per model and quiet minute: {ours:.3f}; polling every {POLL_EACH:.0f} s: {peer:.0f}")
    figures = {
        "opening": opened.total(),
        "closing": closed.total(),
        "quiet": quiet.total(),
        "hot": hot,
        "minutes": minutes,
        "per_model_minute": round(ours, 4),
        "poller_per_model_minute": peer,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=10.0)
    given = parser.parse_args()
    asyncio.run(main(given.models, given.minutes))
