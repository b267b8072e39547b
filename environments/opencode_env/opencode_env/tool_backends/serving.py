"""The tool backends of an environment: shared ones for its whole life, the others for each rollout.

Invariant: what was started is removed when its rollout, or the environment, ends; a shared one that died is made anew
for the next rollout.

A rollout whose backend failed has an error, however its agent went on; nothing of it is scored.
"""

import asyncio
import contextlib
import json
import logging
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any, TypedDict

import verifiers.v1 as vf
from mcp.types import CallToolResult, Tool
from verifiers.v1.errors import ToolsetError
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.trace import Trace
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.features import with_methods
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.tool_backends.bridge import Bridge
from opencode_env.tool_backends.connection import text_result
from opencode_env.tool_backends.description import BackendServerConfig, tool_prefix
from opencode_env.tool_backends.instance import Instance, starting
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.tool_backends.reading import read_backends
from opencode_env.tool_backends.remote import Leftovers

BACKENDS_RECORD = "tool_backends"
"""Key in `trace.info` under which the calls of each backend are counted."""

Start = Callable[[], Awaitable[Instance]]

_CALLS_AT_ONCE = 16
"""Of one rollout at one backend; more wait, so that it cannot starve its neighbours at a shared one."""
_MOST_WAITING = 64
"""More are refused: who has sent one need not stay for its answer, and this process keeps what it holds."""
_OVER = "The tool server has failed; this conversation ends here."


class BrokenBackendError(ToolsetError):
    """A tool backend failed at a call. What the agent asked may have broken it, so `--env.retries` leaves it alone
    unless a rule says otherwise: else an agent could have a bad episode played again."""


class Tally(TypedDict):
    """What a rollout asked of one backend."""

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
        """What the names of its tools begin with."""
        return self._name


class RolloutTools:
    """Starts the backends of one rollout and bridges its agent to them, until `close`."""

    def __init__(self, backends: Mapping[str, Start], bridge: Bridge, base_url: str) -> None:
        self._backends = backends
        self._bridge = bridge
        self.failure: ToolsetError | None = None
        """The first call that was not answered as it should be."""
        self.record: dict[str, Tally] = {name: Tally(calls=0, errors=0, seconds=0.0) for name in backends}
        """By backend."""
        self._channels = {name: _Channel(name, self) for name in backends}
        self._paths = {name: bridge.add(channel) for name, channel in self._channels.items()}
        # verifiers after 0.4.0 asks for them before the setup that starts what is behind them.
        self.toolsets = [BackendToolset(tool_prefix(name), base_url + path) for name, path in self._paths.items()]
        """What verifiers hands to the harness."""

    async def start(self) -> None:
        """Start every backend.

        Raises:
            ToolsetError: one did not start.
        """
        instances = await all_started(list(self._backends.values()))
        for channel, instance in zip(self._channels.values(), instances, strict=True):
            channel.instance = instance

    def close(self) -> None:
        """Close the channels; idempotent."""
        for path in self._paths.values():
            self._bridge.remove(path)


class _Channel:
    """The route of one backend."""

    def __init__(self, name: str, rollout: RolloutTools) -> None:
        self.instance: Instance | None = None
        """What is at its end, once that has started."""
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


async def all_started(starts: Sequence[Start]) -> list[Instance]:
    """Start several at once; if one fails the others are given up.

    Raises:
        ToolsetError: the first that failed.
    """
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

    return with_methods(task, setup=setup, toolsets=toolsets, hooks=hooks, finalize=finalize)


class ToolBackends:
    """What a file describes, between `start` and `stop`."""

    def __init__(self, options: BackendsConfig) -> None:
        """Read the file.

        Raises:
            BackendFileError: it cannot be used.
        """
        assert options.file is not None
        self._options = options
        self._file = read_backends(options.file)
        self._bridge = Bridge()
        self._leftovers = Leftovers()
        known = self._file.config.backends
        self._shared = [_Shared(one, self._started) for one in known if one.instance_scoping == "shared_global"]

    async def start(self) -> None:
        """Start the bridge and the shared backends.

        Raises:
            ToolsetError: one did not start.
        """
        logging.getLogger("verifiers.v1.opencode_env.tool_backends").setLevel(self._file.config.log_level.upper())
        await self._bridge.start()
        await all_started([shared.instance for shared in self._shared])

    async def stop(self) -> None:
        """Remove what is left; idempotent, also after a failed start."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._bridge.stop)
            stack.push_async_callback(self._leftovers.remove)
            for shared in self._shared:
                stack.push_async_callback(shared.stop)

    def _started(self, backend: BackendServerConfig, session: str) -> AbstractAsyncContextManager[Instance]:
        return starting(backend, self._file, self._options, session, self._leftovers)

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
    """An instance for all rollouts of this process."""

    def __init__(
        self, backend: BackendServerConfig, started: Callable[..., AbstractAsyncContextManager[Instance]]
    ) -> None:
        self.backend = backend
        self._started = started
        self._stack = AsyncExitStack()
        self._instance: Instance | None = None
        self._lock = asyncio.Lock()

    async def instance(self) -> Instance:
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
