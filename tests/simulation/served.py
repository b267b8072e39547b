"""A real shared world server in a process of its own, as verifiers starts it, and rollouts that play on it."""

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.hub import hub
from opencode_simulation.ledger import Ledger
from opencode_simulation.task import SimulationTaskConfig, server_config, shared_group
from opencode_simulation.toolset import SimulationToolset
from verifiers.v1.mcp import SharedToolServer, serve_shared
from verifiers.v1.mcp.server import state_signature

from tests.simulation import ledgers
from tests.support.user_home import PLUGINS

STATE = "http://127.0.0.1:9/state"
"""The state channel that a rollout's URL names; worlds do not use it."""


def text(result: CallToolResult) -> str:
    """What an agent reads of a tool's answer."""
    return "".join(block.text for block in result.content if isinstance(block, TextContent))


@dataclass
class Seat:
    """One rollout that plays: what the environment knows of it, and where its agent finds its tools."""

    url: str
    rollout: str = field(default_factory=lambda: uuid.uuid4().hex)

    async def finish(self) -> Ledger:
        """Close the world; its ledger."""
        try:
            return await hub().finish(self.rollout)
        finally:
            await hub().forget(self.rollout)


@dataclass(frozen=True)
class SharedWorlds:
    """A started server."""

    server: SharedToolServer
    group: str

    def url(self, rollout: str) -> str:
        """The tool URL that the agent of a rollout is given."""
        signature = state_signature(self.server.state_secret, STATE, rollout)
        query = {"vf_state_url": STATE, "vf_state_route": rollout, "vf_state_signature": signature}
        return f"{self.server.url}?{urlencode(query)}"

    async def seat(self, changed: Callable[[Ledger], None] = lambda _: None, **spec: Any) -> Seat:
        """Reset a world for a new rollout.

        Raises:
            WorldError: it could not be reset.
        """
        seat = Seat("")
        seat.url = self.url(seat.rollout)
        found = EpisodeSpec(**spec)
        ledger = ledgers.empty(seed=found.seed, config=dict(found.config))
        await hub().open(seat.rollout, found, ledger, changed)
        try:
            await hub().open_shared(seat.rollout, self.group)
        except BaseException:
            await hub().forget(seat.rollout)
            raise
        return seat


def server_processes(served: SharedWorlds) -> list[int]:
    """The processes of a world's server."""
    assert served.server.runtime is not None
    return [process.pid for process in served.server.runtime._background]  # type: ignore[attr-defined]


@asynccontextmanager
async def shared_worlds(world: str) -> AsyncIterator[SharedWorlds]:
    """Start the shared server of one world."""
    config = SimulationTaskConfig(world=world, server="shared")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(PLUGINS))
        toolsets: list[vf.Toolset[Any, Any]] = [SimulationToolset(server_config(config))]
        async with serve_shared(toolsets) as servers:
            (server,) = servers.values()
            yield SharedWorlds(server, shared_group(config))


async def post(url: str, request_id: int | str, method: str, **params: Any) -> httpx.Response:
    """Send a JSON-RPC request, as a program of the agent's can."""
    body = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
    async with httpx.AsyncClient(timeout=120, verify=False) as client:  # no TLS here
        return await client.post(url, json=body, headers={"accept": "application/json, text/event-stream"})
