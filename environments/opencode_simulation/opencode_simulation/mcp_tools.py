"""A world's tools and resources on an MCP server.

The agent sees names, schemas and descriptions from the class alone, and of each call the observation alone; which
episode a request is for is the server's to say, and nothing in the request's body can.
"""

import contextlib
import functools
import hashlib
import inspect
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

from mcp import MCPError
from mcp.server._otel import OpenTelemetryMiddleware
from mcp.server.context import ServerRequestContext
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp.types import METHOD_NOT_FOUND

from opencode_simulation.episode import CallKey, Episode
from opencode_simulation.errors import CallRefused
from opencode_simulation.world import RESOURCE_URI, TOOL_NAME, World, declared

Request = ServerRequestContext[Any, Any]
Find = Callable[[Request], Awaitable[Episode]]
"""The episode that a request is for; raises `CallRefused` where there is none."""
_request: ContextVar[Request] = ContextVar("request")


def offer_world(mcp: MCPServer[Any], world: type[World], find: Find) -> None:
    resources = declared(world, RESOURCE_URI)

    async def remember(ctx: Request, call_next: Callable[[Request], Awaitable[Any]]) -> Any:
        _request.set(ctx)
        if not resources and ctx.method.startswith("resources/"):
            raise MCPError(code=METHOD_NOT_FOUND, message="Method not found", data=ctx.method)
        if ctx.method not in ("initialize", "server/discover"):
            return await call_next(ctx)
        with contextlib.suppress(CallRefused):  # said when something is called
            (await find(ctx)).forget_calls(_client(ctx))
        answer = await call_next(ctx)
        if not resources:  # a server that can list them gives OpenCode three more tools, to read what is not there
            answer["capabilities"].pop("resources", None)
        return answer

    # Nobody collects spans of these calls here, and their attributes would be the agent's own words.
    mcp.middleware[:] = [one for one in mcp.middleware if not isinstance(one, OpenTelemetryMiddleware)]
    mcp.middleware.append(remember)
    for name, tool in declared(world, TOOL_NAME).items():
        description = inspect.getdoc(tool)
        mcp.add_tool(signed_tool(name, tool, find), name=name, description=description, structured_output=False)
    for uri, method in resources.items():
        offer_resource(mcp, uri, method, find)


async def nobody(request: Request) -> Episode:
    """The `Find` of a server whose tools are only looked at."""
    raise CallRefused("tools are looked at only here, and nothing is played")


def signed_tool(name: str, tool: Callable[..., Any], find: Find) -> Callable[..., Awaitable[str]]:
    """Return what an MCP server calls for a tool, with the tool's own parameters."""

    async def call(**arguments: Any) -> str:
        request = _request.get()
        try:
            episode = await find(request)
            return await episode.call(name, arguments, _key(request))
        except (CallRefused, ConnectionError) as error:
            raise ToolError(str(error)) from None

    return _signed(call, tool)


def offer_resource(mcp: MCPServer[Any], uri: str, method: Callable[..., Any], find: Find) -> None:
    async def read(**arguments: Any) -> Any:
        try:
            episode = await find(_request.get())
            return await episode.read(getattr(episode.world, method.__name__), **arguments)
        except CallRefused as error:
            raise ResourceError(str(error)) from None

    mcp.resource(uri, name=method.__name__, description=inspect.getdoc(method))(_signed(read, method))


def _signed(call: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """`call` with the parameters of a world's method, which is seen on its class."""
    parameters = list(inspect.signature(method, eval_str=True).parameters.values())[1:]  # without the world itself
    functools.update_wrapper(call, method, assigned=("__module__", "__name__", "__qualname__", "__doc__"), updated=())
    del call.__wrapped__  # type: ignore[attr-defined]  # it would be asked for its parameters
    call.__signature__ = inspect.Signature(parameters, return_annotation=str)  # type: ignore[attr-defined]
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call


def _key(request: Request) -> CallKey | None:
    """Return what a call that is sent again has in common with the first, and no other call of the same client."""
    if request.request_id is None or request.params is None:
        return None
    called = f"{request.request_id!r} {request.params.get('name')} {request.params.get('arguments')!r}"
    return _client(request), hashlib.sha256(called.encode(errors="backslashreplace")).hexdigest()


def _client(request: Request) -> str:
    """Return who asks, as far as requests without sessions tell: programs of the agent's number their calls as it
    does."""
    return str(getattr(request.request, "headers", {}).get("user-agent", ""))
