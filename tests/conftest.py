"""Fixtures that many suites share. Real parts are started once per session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from sim.controlplane import ControlPlane
from tests import realparts

settings.register_profile("sunfleet", deadline=None)  # a busy machine is no fault
settings.load_profile("sunfleet")


@pytest.fixture(scope="session")
async def temporal() -> AsyncIterator[WorkflowEnvironment]:
    """A real Temporal dev server."""
    async with await WorkflowEnvironment.start_local(
        dev_server_existing_path=realparts.temporal_path(),
        data_converter=pydantic_data_converter,
        dev_server_log_level="error",
    ) as environment:
        yield environment


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real Kubernetes control plane. Started from a thread: its own event loop, whoever asks for it."""
    realparts.need_control_plane()
    plane = ControlPlane(tmp_path_factory.mktemp("controlplane"))
    with ThreadPoolExecutor(1) as thread:
        thread.submit(asyncio.run, plane.start()).result()
        yield plane
        thread.submit(asyncio.run, plane.stop()).result()


@pytest.fixture(scope="session", autouse=True)
def recorded_traffic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Every distinct (verb, kind, options) that our client sends in this run."""
    file = tmp_path_factory.mktemp("traffic") / "kubernetes.jsonl"
    os.environ["SUNFLEET_RECORD_KUBERNETES"] = str(file)
    yield file
    del os.environ["SUNFLEET_RECORD_KUBERNETES"]


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests ran on each real part."""
    passed = terminalreporter.stats.get("passed", [])
    kubernetes = sum(1 for r in passed if "real_kubernetes" in r.keywords)
    engine = sum(1 for r in passed if "real_engine" in r.keywords)
    temporal_tests = sum(1 for r in passed if "/workflows/" in r.nodeid or "temporal" in r.nodeid)
    terminalreporter.write_line(
        f"on real parts: Temporal {temporal_tests}, Kubernetes {kubernetes}, vLLM {engine} tests passed"
    )
