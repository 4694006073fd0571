"""Fleet bodies to change one thing in, and the problems that follow."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sunfleet import spec
from sunfleet.errors import BadInput, Problem

Body = dict[str, Any]
COMMIT = "1" * 40
GONE = object()

_SITE = {
    "zone": "Asia/Tokyo",
    "endpoint": "https://ap1.example.net/{deployment}/v1",
    "gpus": {"h200": {"product": "NVIDIA-H200"}},
}
_BODY: Body = {
    "apiVersion": "sunfleet.dev/v1alpha1",
    "kind": "Fleet",
    "metadata": {"name": "small"},
    "sites": {
        "tokyo": _SITE,
        "frankfurt": _SITE | {"zone": "Europe/Berlin", "endpoint": "https://eu1.example.net/{deployment}/v1"},
    },
    "engines": {"vllm": {"image": "sim/vllm", "version": "0.33.0"}},
    "models": {"chat": {"source": f"hf://org/chat@{COMMIT}", "servedName": "Chat-8B", "gpu": "h200"}},
    "pools": {
        "chat": {
            "model": "chat",
            "sites": ["tokyo"],
            "windows": [{"name": "day", "days": "mon-fri", "start": "08:00", "for": "11h", "hot": 2}],
        }
    },
}


def body(*changes: tuple[str, Any]) -> Body:
    """A small good fleet with fields set, added or (GONE) taken away: `("sites/tokyo/zone", "Mars/Base")`."""
    found: Body = json.loads(json.dumps(_BODY))
    for path, value in changes:
        *above, last = path.split("/")
        block: Any = found
        for part in above:
            block = block[int(part)] if isinstance(block, list) else block.setdefault(part, {})
        if value is GONE:
            del block[last]
        elif isinstance(block, list):
            block[int(last) :] = [value]
        else:
            block[last] = value
    return found


def window(**changes: Any) -> Body:
    """A window by its camelCase fields; `for_` is `for`."""
    base: Body = {"name": "day", "days": "mon-fri", "start": "08:00", "for": "11h", "hot": 2}
    base |= {k.rstrip("_"): v for k, v in changes.items()}
    return {k: v for k, v in base.items() if v is not GONE}


def problems(given: Any) -> tuple[Problem, ...]:
    """Every problem of a body that is refused."""
    with pytest.raises(BadInput) as caught:
        spec.parse_body(given)
    return caught.value.problems


def told(given: Any) -> list[tuple[str, str]]:
    """The (path, code) of every problem of a body that is refused."""
    return [(p.path, p.code) for p in problems(given)]
