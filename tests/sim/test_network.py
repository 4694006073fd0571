"""The simulated network keeps to what real connections do."""

from __future__ import annotations

import uvicorn

from activities.clients import engine, gateway
from sim import network


def test_no_client_would_reuse_a_connection_that_its_server_is_about_to_end() -> None:
    """A request sent into a connection that closes is lost, and nobody may repeat it for the user."""
    server = uvicorn.Config("app:none").timeout_keep_alive  # vLLM's own default, too
    for pool in (network.POOL, engine.POOL, gateway.POOL):
        assert pool.keepalive_expiry is not None
        assert pool.keepalive_expiry < server
