"""A real Temporal server with stand-in workflows, shared by the tests of the console."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio
from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from console.facade import Console
from sunfleet import messages, names
from sunfleet.messages import Health, SetFleet
from tests import realparts
from tests.console.standins import ALL, BODY


@pytest_asyncio.fixture(scope="session")
async def client() -> AsyncIterator[Client]:
    """A client with a worker for the stand-ins, on a server of its own: on the shared one, the real workflows of other
    suites would be served from the same queue under the same names."""
    async with (
        await WorkflowEnvironment.start_local(
            dev_server_existing_path=realparts.temporal_path(), data_converter=pydantic_data_converter
        ) as env,
        Worker(
            env.client,
            task_queue=names.CONTROL_QUEUE,
            workflows=list(ALL),
            workflow_runner=UnsandboxedWorkflowRunner(),
        ),
    ):
        yield env.client


@pytest_asyncio.fixture(scope="session")
async def console(client: Client) -> Console:
    """A fleet `small` with one site and one model, as every test finds it."""
    found = Console(client)
    await found.apply("small", SetFleet(request_id="first", author="ana", body=BODY))
    for kind, given, id in (
        (messages.SITE, 1, names.site_id("tokyo")),
        (messages.DEPLOYMENT, Health.READY, names.deployment_id("tokyo", "llm", "chat-8b")),
    ):
        await client.start_workflow(kind, given, id=id, task_queue=names.CONTROL_QUEUE)
    return found
