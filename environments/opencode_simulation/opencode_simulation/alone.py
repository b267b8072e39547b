"""A world alone, without an agent or an environment: as an MCP server under /mcp, or to be played by its author."""

import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from pydantic import JsonValue

from opencode_simulation.episode import Episode, EpisodeSpec
from opencode_simulation.ledger import Ledger, LedgerEntry, LedgerSummary
from opencode_simulation.mcp_tools import Request, offer_world
from opencode_simulation.reference import world_name
from opencode_simulation.world import World


class WorldAlone:
    """One episode of a world, with its ledger; `async with` resets and closes it.

    With a path, the ledger's steps are also appended there as JSON lines.

    Raises:
        WorldError: the world could not be reset.
    """

    def __init__(self, world: type[World], spec: EpisodeSpec, ledger_path: Path | None = None) -> None:
        self.ledger = Ledger(summary=LedgerSummary(world=world.__name__, seed=spec.seed, config=dict(spec.config)))
        self.kind = world
        self.episode = Episode(world, spec, self)
        self.first_observation: JsonValue = None
        self.on_failure: Callable[[str], object] = lambda _: None
        """Called when the world fails, with how."""
        self._ledger_path = ledger_path

    async def step(self, entry: LedgerEntry) -> None:
        """Take a step into the ledger, as the episode's `Recorder`."""
        self.ledger.add(entry)
        if self._ledger_path is not None:
            with self._ledger_path.open("a", encoding="utf-8") as file:
                file.write(entry.model_dump_json() + "\n")

    async def failed(self, error: str) -> None:
        """Note the failure, as the episode's `Recorder`."""
        self.ledger.summary.error = error
        self.on_failure(error)

    async def __aenter__(self) -> "WorldAlone":
        self.first_observation = self.ledger.summary.first_observation = await self.episode.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.episode.close()

    def server(self) -> MCPServer[Any]:
        """An MCP server of this one episode, for whoever calls it."""

        async def find(request: Request) -> Episode:
            return self.episode

        mcp: MCPServer[Any] = MCPServer(world_name(self.kind))
        offer_world(mcp, self.kind, find)
        return mcp


async def serve_alone(world: WorldAlone, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve a world under `/mcp` until SIGTERM or SIGINT; `ready` is called with the port when it can be reached.

    Raises:
        OSError: nobody can listen there.
    """
    app = world.server().streamable_http_app(
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(enable_dns_rebinding_protection=False),
    )
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    # One that comes before uvicorn listens to it counts, too; and after it the world is still to be closed.
    signal.signal(signal.SIGTERM, lambda *_: setattr(server, "should_exit", True))
    with socket.create_server((host, port)) as listener:
        # Its connections take it over; else the body of an answer waits 40 ms for the headers' acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ready(listener.getsockname()[1])
        await server.serve(sockets=[listener])
