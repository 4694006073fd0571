"""The engine's command line and environment, as far as vLLM's own goes for what we render."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAULTS = (
    "",
    "dead_at_first_token",  # healthy, listed, and silent when asked
    "wrong_name",  # lists another model
    "empty_text",  # 200 with no token at all
    "slow",  # every answer takes seconds
    "refuses_key",  # 401 to the right key
    "dies_after",  # exits after N answers
    "zombie",  # healthy, 500 to everything else
    "never_loads",
    "exit_at_start",
)
BOOLEAN = (
    "enforce-eager",
    "enable-prefix-caching",
    "no-enable-prefix-caching",
    "enable-chunked-prefill",
    "no-enable-chunked-prefill",
    "enable-sleep-mode",
    "trust-remote-code",
    "enable-request-id-headers",
    "enable-server-load-tracking",
    "enable-expert-parallel",
    "disable-log-requests",
)
VALUED = (
    "max-model-len",
    "gpu-memory-utilization",
    "quantization",
    "kv-cache-dtype",
    "dtype",
    "host",
    "disable-access-log-for-endpoints",
    "max-num-seqs",
    "kv-cache-memory-bytes",
    "uvicorn-log-level",
    "pipeline-parallel-size",
    "data-parallel-size",
    "revision",
    "download-dir",
    "seed",
    "runner",
    "speculative-config",
    "tokenizer",
    "distributed-executor-backend",
)


@dataclass(slots=True)
class EngineOptions:
    """What one engine is."""

    model: Path
    served_names: tuple[str, ...]
    port: int = 8000
    host: str = "127.0.0.1"
    keys: tuple[str, ...] = ()
    tensor: int = 1
    max_model_len: int = 4096
    shutdown_timeout: float = 0.0
    embed: bool = False
    sleep: bool = False
    start_seconds: float = 0.3
    load_rate: float = 500e6  # bytes per second from disk
    fault: str = ""
    fault_after: int = 0
    pod: str = ""
    site: str = ""
    gpus: int = 0
    access_log: Path | None = None
    token_seconds: float = 0.005
    extra: dict[str, Any] = field(default_factory=dict)


def parse(argv: Sequence[str], env: Mapping[str, str] = os.environ) -> EngineOptions:
    """Read a command line; unknown flags end the process with 2, as argparse does."""
    parser = argparse.ArgumentParser(prog="vllm serve")
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--model")
    parser.add_argument("--served-model-name", nargs="+", default=[])
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--api-key", nargs="*", default=[])
    parser.add_argument("-tp", "--tensor-parallel-size", type=int, default=1)
    parser.add_argument("--shutdown-timeout", type=float, default=0.0)
    parser.add_argument("--task", default="")
    for flag in BOOLEAN:
        parser.add_argument(f"--{flag}", action="store_true")
    for flag in VALUED:
        parser.add_argument(f"--{flag}")
    given = parser.parse_args(list(argv))
    model = given.model_tag or given.model
    if not model:
        parser.error("a model is required")
    keys = tuple(k for k in (given.api_key or [env.get("VLLM_API_KEY", "")]) if k)
    log = env.get("SIM_ACCESS_LOG")
    fault, _, after = env.get("SIM_FAULT", "").partition(":")
    return EngineOptions(
        model=Path(model),
        served_names=tuple(given.served_model_name) or (model,),
        port=given.port,
        host=given.host or "127.0.0.1",
        keys=keys,
        tensor=given.tensor_parallel_size,
        max_model_len=int(given.max_model_len or 4096),
        shutdown_timeout=given.shutdown_timeout,
        embed=given.task == "embed" or given.runner == "pooling" or _embeds(Path(model)),
        sleep=bool(given.enable_sleep_mode and env.get("VLLM_SERVER_DEV_MODE") == "1"),
        start_seconds=float(env.get("SIM_START_SECONDS", "0.3")),
        load_rate=float(env.get("SIM_LOAD_BYTES_PER_SECOND", "500e6")),
        fault=fault,
        fault_after=int(after or 0),
        pod=env.get("SIM_POD_NAME", ""),
        site=env.get("SIM_SITE", ""),
        gpus=int(env.get("SIM_GPUS", "0")),
        access_log=Path(log) if log else None,
    )


def config_of(model: Path) -> dict[str, Any]:
    """config.json, or nothing."""
    try:
        found = json.loads((model / "config.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _embeds(model: Path) -> bool:
    names = config_of(model).get("architectures") or []
    return any(n in ("BertModel", "XLMRobertaModel", "RobertaModel") for n in names)


def refusal(options: EngineOptions) -> str:
    """Why an engine on these files would not start, in vLLM's words; "" when it would."""
    if not (options.model / "config.json").is_file():
        return f"OSError: {options.model} does not appear to have a file named config.json"
    index = options.model / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text()).get("weight_map", {}).values())
        lost = sorted(s for s in shards if not (options.model / s).is_file())
        if lost:
            return f"RuntimeError: Cannot find any model weights with `{options.model}`: no {lost[0]}"
    config = config_of(options.model)
    heads = int(config.get("num_attention_heads") or options.tensor)
    if heads % options.tensor:
        return (
            f"ValueError: Total number of attention heads ({heads}) must be divisible by tensor parallel size "
            f"({options.tensor})."
        )
    return ""


def size_of(model: Path) -> int:
    """Bytes of the model's files."""
    return sum(f.stat().st_size for f in model.rglob("*") if f.is_file())
