"""The tools that something offers: a world, an MCP server object, a URL, a program on standard input, or a snapshot.

Invariant: however they are had, tools come as `ListedTool`s, so that a snapshot of a server compares like the server.
"""

import asyncio
import json
import shlex
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.server import Server
from mcp.server.mcpserver import MCPServer
from opencode_env.tool_backends.connection import all_tools, described
from pydantic import BaseModel, JsonValue, TypeAdapter, ValidationError

from opencode_simulation.mcp_tools import nobody, offer_world
from opencode_simulation.world import World


class ListedTool(BaseModel):
    """One tool as a server lists it, and as a snapshot holds it."""

    name: str
    description: str = ""
    parameters: dict[str, JsonValue]
    """The JSON schema of its arguments."""


Offering = type[World] | MCPServer[Any] | Server[Any] | Path | str
"""A world class; an MCP server object; a JSON snapshot; or text: the URL of a live server, `stdio:program arguments`,
`module:name` of an MCP server object or world class, or the path of a snapshot (`….json`)."""
_SNAPSHOT = TypeAdapter(list[ListedTool])


async def list_tools(offering: Offering) -> list[ListedTool]:
    """The tools that something offers, in its order.

    Raises:
        ValueError: it cannot be found or read, or does not answer; the message says what to write.
    """
    if isinstance(offering, Path):
        return _read_snapshot(offering)
    if isinstance(offering, str):
        return await _named(offering)
    if isinstance(offering, type):
        mcp: MCPServer[Any] = MCPServer(offering.__name__)
        offer_world(mcp, offering, nobody)
        return await list_tools(mcp)
    return await _ask(Client(offering), f"the MCP server {getattr(offering, 'name', '')!r}")


def write_snapshot(tools: list[ListedTool], path: Path) -> None:
    """Save tools as JSON that `list_tools` reads."""
    path.write_text(json.dumps([tool.model_dump() for tool in tools], indent=2, ensure_ascii=False) + "\n")


async def _named(name: str) -> list[ListedTool]:
    if name.startswith(("http://", "https://")):
        return await _ask(Client(name), name)
    if name.startswith("stdio:"):
        command, *arguments = shlex.split(name.removeprefix("stdio:"))
        transport = stdio_client(StdioServerParameters(command=command, args=arguments), errlog=sys.stderr)
        return await _ask(Client(transport), name)
    if name.endswith(".json"):
        return _read_snapshot(Path(name))
    module, _, attribute = name.partition(":")
    if not attribute:
        raise ValueError(
            f"{name!r} is not an MCP server: write a URL, stdio:PROGRAM, module:name of a server object or world, or "
            "the path of a .json snapshot"
        )
    try:
        found = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(f"MCP server {name!r} cannot be imported: {error}") from error
    if not isinstance(found, Server | MCPServer) and not (isinstance(found, type) and issubclass(found, World)):
        raise ValueError(f"{name!r} is neither an MCP server object nor a world but {type(found).__name__}")
    return await list_tools(found)


async def _ask(client: Client, name: str) -> list[ListedTool]:
    try:
        async with asyncio.timeout(120.0), client:  # a program may have to be fetched first
            return [
                ListedTool(name=tool.name, description=tool.description or "", parameters=tool.input_schema)
                for tool in await all_tools(client)
            ]
    except Exception as error:  # whatever the library makes of a server
        raise ValueError(f"{name} does not list its tools: {described(error)}") from error


def _read_snapshot(path: Path) -> list[ListedTool]:
    try:
        return _SNAPSHOT.validate_json(path.read_bytes())
    except OSError as error:
        raise ValueError(f"snapshot {path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        place = ".".join(map(str, problem["loc"]))
        raise ValueError(f"{path} is not a snapshot: {place or 'it'}: {problem['msg']}") from error
