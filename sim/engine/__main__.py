"""`python -m sim.engine MODEL --served-model-name NAME …`: one simulated engine as a process."""

from __future__ import annotations

import asyncio
import signal
import sys

from sim.engine.options import parse
from sim.engine.server import SimEngine


async def _main() -> int:
    engine = SimEngine(parse(sys.argv[1:]))
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await engine.serve(stop)
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(_main()))
