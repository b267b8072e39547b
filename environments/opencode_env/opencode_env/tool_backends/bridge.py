"""The way from agents to the tool backends of their rollouts: one HTTP server of the environment's process.

Invariant: a route is open only between `add` and `remove`, and whoever does not know its random path finds nothing.
An agent learns a path and nothing else: no address of a backend, and no header that the backend wants.
"""

import asyncio
import contextlib
import secrets
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, Tool
from verifiers.v1.interception.tunnel import PrimeTunnel
from verifiers.v1.runtimes import Runtime


class Route(Protocol):
    """One backend as one rollout has it."""

    @property
    def tools(self) -> list[Tool]:
        """What is offered."""

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        """Call a tool; never raises."""


class _QuietServer(uvicorn.Server):
    """A server that leaves the process's signal handlers alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Bridge:
    """Serves MCP over HTTP on this machine's loopback, between `start` and `stop`."""

    def __init__(self) -> None:
        self._routes: dict[str, Route] = {}
        self._stack = AsyncExitStack()
        self._port = 0
        self._public: str | None = None
        self._opening = asyncio.Lock()
        server: Server[Any] = Server("opencode-env", on_list_tools=self._list, on_call_tool=self._call)
        security = TransportSecuritySettings(enable_dns_rebinding_protection=False)  # no browser ever comes here
        self._manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, security_settings=security
        )

    async def start(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        # Its connections take it over. asyncio sets it only on sockets made with a protocol number, and without it
        # the body of an answer waits 40 ms for the acknowledgement of its headers.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._stack.callback(listener.close)
        self._port = listener.getsockname()[1]
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            lifespan="off",
            ws="none",
            proxy_headers=False,
            log_level="critical",
            access_log=False,
            timeout_graceful_shutdown=1,
        )
        server = _QuietServer(config)
        ready = asyncio.Event()
        running = asyncio.create_task(self._run(server, listener, ready))
        self._stack.push_async_callback(_end, server, running)
        await ready.wait()

    async def _run(self, server: uvicorn.Server, listener: socket.socket, ready: asyncio.Event) -> None:
        async with self._manager.run():
            ready.set()
            await server.serve(sockets=[listener])

    async def stop(self) -> None:
        """Close every connection; idempotent."""
        self._routes.clear()
        await self._stack.aclose()

    async def base_url(self, box: Runtime) -> str:
        """The URL at which an agent in `box` is to be told of routes, before `box` makes it its own."""
        if box.is_local:
            return f"http://127.0.0.1:{self._port}"
        async with self._opening:
            if self._public is None:
                self._public = await self._stack.enter_async_context(PrimeTunnel().expose(self._port))
        return self._public

    def add(self, route: Route) -> str:
        """Open a route; returns its path."""
        path = f"/{secrets.token_urlsafe(24)}/mcp"
        self._routes[path] = route
        return path

    def remove(self, path: str) -> None:
        """Close a route; idempotent."""
        self._routes.pop(path, None)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
        """The whole application, as ASGI knows it."""
        if scope["path"] in self._routes:
            await self._manager.handle_request(scope, receive, send)
            return
        await send({"type": "http.response.start", "status": 404, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body"})

    async def _list(self, context: Any, parameters: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=self._routes[context.request.url.path].tools)

    async def _call(self, context: Any, parameters: CallToolRequestParams) -> CallToolResult:
        return await self._routes[context.request.url.path].call(parameters.name, parameters.arguments or {})


async def _end(server: uvicorn.Server, running: "asyncio.Task[None]") -> None:
    server.should_exit = True
    await asyncio.gather(running, return_exceptions=True)
