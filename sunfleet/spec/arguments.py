"""Raw engine arguments: an escape hatch that may not contradict what is typed, nor carry a credential.

The flags are vLLM's own (`vllm serve`), which also reads `_` for `-`, `--flag=value` and unambiguous beginnings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

OWNED: Final = {
    "--port": "the port is Sunfleet's",
    "--host": "the address is Sunfleet's",
    "--uds": "the address is Sunfleet's",
    "--root-path": "the address is Sunfleet's",
    "--ssl-keyfile": "the proof and the gateway speak plain HTTP to engines",
    "--ssl-certfile": "the proof and the gateway speak plain HTTP to engines",
    "--shutdown-timeout": "draining is Sunfleet's",
    "--disable-access-log-for-endpoints": "it is set already",
    "--headless": "engines that span nodes are not started yet",
    "--nnodes": "engines that span nodes are not started yet",
    "--node-rank": "engines that span nodes are not started yet",
    "--config": "a file could say anything; write the arguments themselves",
    "--api-key": "use engines.<name>.key: arguments show in process lists",
    "--hf-token": "credentials live with the site: arguments show in process lists",
    "--model": "use source",
    "--revision": "use source",
    "--download-dir": "weights come from the node's cache",
    "--served-model-name": "use servedName",
    "--task": "use task",
    "--tensor-parallel-size": "use parallel.tensor",
    "-tp": "use parallel.tensor",
    "--pipeline-parallel-size": "use parallel.pipeline",
    "-pp": "use parallel.pipeline",
    "--data-parallel-size": "use parallel.data",
    "-dp": "use parallel.data",
    "--max-model-len": "use tuning.maxModelLen",
    "--gpu-memory-utilization": "use tuning.gpuMemoryUtilizationPercent",
    "--quantization": "use tuning.quantization",
    "-q": "use tuning.quantization",
    "--kv-cache-dtype": "use tuning.kvCacheDtype",
    "--dtype": "use tuning.dtype",
    "--enable-prefix-caching": "use tuning.prefixCaching",
    "--no-enable-prefix-caching": "use tuning.prefixCaching",
    "--enable-chunked-prefill": "use tuning.chunkedPrefill",
    "--no-enable-chunked-prefill": "use tuning.chunkedPrefill",
    "--speculative-config": "use tuning.speculative",
    "--enable-lora": "use adapters",
    "--lora-modules": "use adapters",
    "--enable-sleep-mode": "sleeping is Sunfleet's",
}
_SHORTEST = 4  # of a beginning that may stand for a whole flag: `--mo`


def contradictions(args: list[str]) -> Iterator[tuple[int, str, str]]:
    """The index of each argument that may not stand there, what is wrong, and what to write instead."""
    for index, arg in enumerate(args):
        if not arg.startswith("-"):
            continue
        flag = arg.partition("=")[0]
        if any(c.isspace() for c in flag):
            yield index, f"{arg!r} is more than one argument", "one argument per item: the flag, then its value"
        elif owned := _owned(flag):
            yield index, f"{flag} may not stand in args", OWNED[owned]


def _owned(flag: str) -> str:
    """The owned flag that the engine would read, or ""."""
    flag = flag.replace("_", "-")
    if flag in OWNED:
        return flag
    if flag.startswith("--"):
        return next((known for known in OWNED if len(flag) >= _SHORTEST and known.startswith(flag)), "")
    return next((s for s in ("-tp", "-pp", "-dp") if flag.startswith(s) and flag[len(s) :].isdigit()), "")
