"""Fixtures that many suites share. Real parts are started once per session."""

from __future__ import annotations

import asyncio
import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import settings
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

from sim.controlplane import ControlPlane
from tests import realparts
from tests.traffic import RECORD, Traffic

TRAFFIC = pytest.StashKey[Traffic]()
REAL = {"Temporal": "real_temporal", "Kubernetes": "real_kubernetes", "vLLM": "real_engine"}
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


@pytest.fixture(scope="session")
def traffic(request: pytest.FixtureRequest) -> Traffic:
    """Where the session's Kubernetes traffic is noted."""
    return request.config.stash[TRAFFIC]


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note every distinct (verb, kind, options) that our client sends in this run."""
    found = Traffic(Path(tempfile.mkdtemp(prefix="sunfleet-traffic-")))
    session.config.stash[TRAFFIC] = found
    os.environ[RECORD] = str(found.everywhere)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Traffic that no contract holds fails the run."""
    _, well = session.config.stash[TRAFFIC].summary()
    if exitstatus == pytest.ExitCode.OK and not well:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    if found := config.stash.get(TRAFFIC, None):
        shutil.rmtree(found.folder, ignore_errors=True)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How many tests ran on each real part."""
    passed = terminalreporter.stats.get("passed", [])
    counts = {name: sum(1 for r in passed if mark in r.keywords) for name, mark in REAL.items()}
    found = ", ".join(f"{name} {count}" for name, count in counts.items())
    terminalreporter.write_line(f"on real parts: {found} tests passed")
    terminalreporter.write_line(terminalreporter.config.stash[TRAFFIC].summary()[0])
