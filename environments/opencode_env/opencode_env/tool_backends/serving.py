"""The tool backends of an environment: shared ones for its whole life, the others for each rollout.

What was started is removed when its rollout, or the environment, ends; a shared one that died is made anew for the next
rollout.

A rollout whose backend failed has an error, however its agent went on; nothing of it is scored. Agents reach backends
through one HTTP server of this process, the bridge.
"""

import asyncio
import contextlib
import copy
import json
import logging
import secrets
import socket
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypedDict

import uvicorn
import verifiers.v1 as vf
from mcp.server.lowlevel import Server as McpServer
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams, Tool
from verifiers.v1.errors import ToolsetError
from verifiers.v1.interception.tunnel import PrimeTunnel
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.trace import Trace
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.compat import with_methods
from opencode_env.errors import BrokenBackendError
from opencode_env.tool_backends.backend_file import read_backends, server_of
from opencode_env.tool_backends.connection import BackendConnection, BackendServer, connected, text_result
from opencode_env.tool_backends.description import BackendFile, BackendServerConfig, StartupCheck, tool_prefix
from opencode_env.tool_backends.local import StdioServer
from opencode_env.tool_backends.options import BackendsConfig

logger = logging.getLogger("verifiers.v1.opencode_env.tool_backends")

BACKENDS_RECORD = "tool_backends"
"""Key in `trace.info` under which the calls of each backend are counted."""

Start = Callable[[], Awaitable[BackendConnection]]

_CALLS_AT_ONCE = 16
"""Of one rollout at one backend; more wait, so that it cannot starve its neighbours at a shared one."""
_MOST_WAITING = 64
"""More are refused: who has sent one need not stay for its answer, and this process keeps what it holds."""
_OVER = "The tool server has failed; this conversation ends here."


class CallCounts(TypedDict):
    """Counts what a rollout asked of one backend."""

    calls: int
    errors: int
    """Calls that the server answered with an error."""
    seconds: float


class BackendToolset(vf.Toolset[vf.ToolsetConfig, vf.State]):
    """A backend as verifiers knows tools: a name and a URL."""

    def __init__(self, name: str, url: str) -> None:
        super().__init__(vf.ToolsetConfig(url=url))
        self._name = name

    @property
    def server_name(self) -> str:
        """The prefix of the names of its tools."""
        return self._name


class RolloutTools:
    """Starts the backends of one rollout and bridges its agent to them, until `close`."""

    def __init__(self, backends: Mapping[str, Start], bridge: "Bridge", base_url: str) -> None:
        self._backends = backends
        self._bridge = bridge
        self.failure: ToolsetError | None = None
        """The first call that was not answered as it should be."""
        self.record: dict[str, CallCounts] = {name: CallCounts(calls=0, errors=0, seconds=0.0) for name in backends}
        """What it asked of each backend, by name."""
        self._channels = {name: _Channel(name, self) for name in backends}
        self._paths = {name: bridge.add(channel) for name, channel in self._channels.items()}
        # verifiers after 0.4.0 asks for them before the setup that starts what is behind them.
        self.toolsets = [BackendToolset(tool_prefix(name), base_url + path) for name, path in self._paths.items()]
        """What verifiers hands to the harness."""

    async def start(self) -> None:
        """Start every backend; a `ToolsetError` where one did not start."""
        instances = await all_started(list(self._backends.values()))
        for channel, instance in zip(self._channels.values(), instances, strict=True):
            channel.instance = instance

    def close(self) -> None:
        for path in self._paths.values():
            self._bridge.remove(path)


class _Channel:
    """One backend as one rollout has it: counted, and bounded."""

    def __init__(self, name: str, rollout: RolloutTools) -> None:
        self.instance: BackendConnection | None = None
        """The connection to the backend, once it has started."""
        self._name = name
        self._rollout = rollout
        self._places = asyncio.Semaphore(_CALLS_AT_ONCE)
        self._waiting = 0

    @property
    def tools(self) -> list[Tool]:
        return [] if self.instance is None else self.instance.tools

    async def call(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        if self._waiting >= _MOST_WAITING:
            return text_result(f"{_MOST_WAITING} calls are waiting already: call again when some are answered.")
        self._waiting += 1
        try:
            return await self._called(tool, arguments)
        finally:
            self._waiting -= 1

    async def _called(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        tally = self._rollout.record[self._name]
        async with self._places:
            if self._rollout.failure is not None or self.instance is None:
                return text_result(_OVER)
            if not _is_json(arguments):
                return text_result("The arguments are not JSON.")
            # Who has asked a shared one nothing before it was gone cannot have broken it.
            blameless = not tally["calls"] and self.instance.suspect
            started = time.monotonic()
            tally["calls"] += 1
            try:
                result = await self.instance.call(tool, arguments)
            except ToolsetError as error:
                failure = error if blameless else BrokenBackendError(str(error))
                self._rollout.failure = self._rollout.failure or failure
                return text_result(_OVER)
            finally:
                tally["seconds"] = round(tally["seconds"] + time.monotonic() - started, 3)
            tally["errors"] += bool(result.is_error)
            return result


def _is_json(arguments: dict[str, Any]) -> bool:
    """Whether a server can read them: what is sent may be NaN, or a lone surrogate."""
    try:
        json.dumps(arguments, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


async def all_started(starts: Sequence[Start]) -> list[BackendConnection]:
    """Start several at once; if one fails the others are given up."""
    tasks = [asyncio.ensure_future(start()) for start in starts]
    try:
        return list(await asyncio.gather(*tasks))
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def equipped_task(task: Task[Any, Any, Any], tools: RolloutTools) -> Task[Any, Any, Any]:
    """The same task, which starts the backends in its setup, offers their tools and stops when one fails."""

    async def setup(trace: AnyTrace, runtime: Runtime) -> None:
        trace.info[BACKENDS_RECORD] = tools.record
        await tools.start()
        await invoke(task.setup, {"trace": trace, "runtime": runtime})

    def toolsets(config: Any) -> list[Any]:
        return [*task.toolsets(config), *tools.toolsets]

    # verifiers knows a stop by this very annotation.
    async def tool_backend_failed(trace: Trace) -> bool:  # type: ignore[type-arg]
        return tools.failure is not None

    def hooks(attr: str) -> list[Callable[..., Any]]:
        return [*([tool_backend_failed] if attr == "stop" else []), *task.hooks(attr)]

    # By name: verifiers 0.4.0 has no deployment, and tasks written for it do not take one.
    async def finalize(trace: AnyTrace, runtime: Runtime, deployment: Any = None) -> None:
        if tools.failure is not None:
            raise tools.failure
        await invoke(task.finalize, {"trace": trace, "runtime": runtime, "deployment": deployment})
        if tools.failure is not None:
            raise tools.failure

    return with_methods(copy.copy(task), setup=setup, toolsets=toolsets, hooks=hooks, finalize=finalize)


class ToolBackends:
    """Holds the servers that a file describes, between `start` and `stop`."""

    def __init__(self, options: BackendsConfig) -> None:
        assert options.file is not None
        self._options = options
        self._file = read_backends(options.file)
        self._bridge = Bridge()
        known = self._file.config.backends
        self._shared = [_Shared(one, self._started) for one in known if one.instance_scoping == "shared_global"]

    @property
    def shares(self) -> bool:
        """Whether a backend is one for all rollouts."""
        return bool(self._shared)

    async def start(self) -> None:
        """Start the bridge and the shared backends; a `ToolsetError` where one did not start."""
        logger.setLevel(self._file.config.log_level.upper())
        await self._bridge.start()
        await all_started([shared.instance for shared in self._shared])

    async def stop(self) -> None:
        """Remove what is left; idempotent, also after a failed start."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._bridge.stop)
            for shared in self._shared:
                stack.push_async_callback(shared.stop)

    def _started(self, backend: BackendServerConfig, session: str) -> AbstractAsyncContextManager[BackendConnection]:
        return starting(backend, self._file, self._options, session)

    @contextlib.asynccontextmanager
    async def equipped(self, task: Task[Any, Any, Any], box: Runtime) -> AsyncIterator[Task[Any, Any, Any]]:
        """The same task with the tools of the backends, for one rollout whose agent is in `box`; see `equipped_task`.
        What its setup starts for this rollout alone is removed on exit."""
        base = await self._bridge.base_url(box)
        session = uuid.uuid4().hex
        async with AsyncExitStack() as stack:

            def start_of(backend: BackendServerConfig) -> Start:
                shared = next((shared for shared in self._shared if shared.backend is backend), None)
                if shared is not None:
                    return shared.instance
                return lambda: stack.enter_async_context(self._started(backend, session))

            starts = {backend.backend_name_ref: start_of(backend) for backend in self._file.config.backends}
            tools = RolloutTools(starts, self._bridge, base)
            stack.callback(tools.close)
            yield equipped_task(task, tools)


class _Shared:
    """A backend that all rollouts of this process share."""

    def __init__(
        self, backend: BackendServerConfig, started: Callable[..., AbstractAsyncContextManager[BackendConnection]]
    ) -> None:
        self.backend = backend
        self._started = started
        self._stack = AsyncExitStack()
        self._instance: BackendConnection | None = None
        self._lock = asyncio.Lock()

    async def instance(self) -> BackendConnection:
        """The instance, made anew if it has died."""
        async with self._lock:
            found = self._instance
            if found is None or not await found.works():
                self._instance = None
                await self._stack.aclose()
                made = self._started(self.backend, "global_shared_session")
                self._instance = found = await self._stack.enter_async_context(made)
            return found

    async def stop(self) -> None:
        async with self._lock:
            self._instance = None
            await self._stack.aclose()


@contextlib.asynccontextmanager
async def starting(
    backend: BackendServerConfig, file: BackendFile, options: BackendsConfig, session: str
) -> AsyncIterator[BackendConnection]:
    """Start an instance, which is removed on exit; a `ToolsetError` where it did not start in time."""
    name = backend.backend_name_ref
    async with AsyncExitStack() as stack:
        server: BackendServer | None = None
        try:
            async with asyncio.timeout(options.start_timeout) as limit:
                started = server_of(backend, file, options.call_timeout, session)
                server = await stack.enter_async_context(started)
                connection = await _connected(name, server, options.call_timeout, stack)
                if backend.startup_check_mcp_tool is not None:
                    await check_start(connection, backend.startup_check_mcp_tool)
        except TimeoutError as error:
            if not limit.expired():
                raise
            words = f": {server.words}" if isinstance(server, StdioServer) else ""
            late = f"did not start within {options.start_timeout:g} s (--env.backends.start-timeout){words}"
            raise ToolsetError(f"tool backend {name!r} {late}") from error
        logger.info("tool backend %s started: %d tools", name, len(connection.tools))
        yield connection


async def _connected(name: str, server: BackendServer, call_timeout: float, stack: AsyncExitStack) -> BackendConnection:
    """Connect for as long as `stack` is open, again as long as the server may still be on its way up."""
    while True:
        try:
            return await stack.enter_async_context(connected(name, server, call_timeout))
        except ToolsetError as error:
            if (reason := await server.failure()) is not None:
                raise ToolsetError(f"tool backend {name!r} did not start: {reason}") from error
            if not server.patient:
                raise
            await asyncio.sleep(0.2)


async def check_start(connection: BackendConnection, check: StartupCheck) -> None:
    name = connection.name
    if check.tool_name not in [tool.name for tool in connection.tools]:
        if check.tool_name in ("ping", "list_tools"):
            await connection.probe()
            return
        offered = ", ".join(tool.name for tool in connection.tools) or "none"
        raise ToolsetError(f"start-up check of backend {name!r}: it has no tool {check.tool_name!r}, only {offered}")
    result = await connection.call(check.tool_name, check.arguments)
    if result.is_error:
        said = " ".join(getattr(part, "text", "") for part in result.content)[-500:]
        raise ToolsetError(f"start-up check {check.tool_name!r} of backend {name!r} failed: {said}")


class _QuietServer(uvicorn.Server):
    """A server that leaves the process's signal handlers alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Bridge:
    """Serves MCP over HTTP on this machine's loopback, between `start` and `stop`. A route is open only between `add`
    and `remove`, under a random path. That is all that an agent learns: no address of a backend, and no header that it
    wants."""

    def __init__(self) -> None:
        self._routes: dict[str, _Channel] = {}
        self._stack = AsyncExitStack()
        self._port = 0
        self._public: str | None = None
        self._opening = asyncio.Lock()
        server: McpServer[Any] = McpServer("opencode-env", on_list_tools=self._list, on_call_tool=self._call)
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

    def add(self, route: _Channel) -> str:
        path = f"/{secrets.token_urlsafe(24)}/mcp"
        self._routes[path] = route
        return path

    def remove(self, path: str) -> None:
        self._routes.pop(path, None)

    async def _serve(self, scope: Any, receive: Any, send: Any) -> None:
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
