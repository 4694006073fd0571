"""Real parts for tests: a Temporal dev server, a Kubernetes control plane, vLLM in CPU mode.

Whoever lacks one is told how to get it and skips its suite; in CI (`SUNFLEET_REQUIRE_REAL=1`) a missing part fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sim import controlplane
from workers.supervisor import temporal_program

REQUIRED = os.environ.get("SUNFLEET_REQUIRE_REAL") == "1"
ROOT = Path(__file__).resolve().parent.parent
VLLM_PYTHON = ROOT / ".venv-vllm" / "bin" / "python"


def need(why_not: str) -> None:
    """Skip with the reason, or fail where real parts are required."""
    if not why_not:
        return
    if REQUIRED:
        pytest.fail(why_not)
    pytest.skip(why_not)


def need_control_plane() -> None:
    need(controlplane.missing())


def need_vllm() -> Path:
    """The Python that has vLLM."""
    need("" if VLLM_PYTHON.exists() else "real vLLM is not installed here: make vllm")
    return VLLM_PYTHON


def temporal_path() -> str:
    """The dev server comes with the dependencies: it is never missing."""
    return temporal_program()
