"""The tool backends of an environment: shared ones for its whole life, the others for each rollout.

Invariant: what was started is removed when its rollout, or the environment, ends; a shared one that died is made anew
for the next rollout.

A rollout whose backend failed has an error, however its agent went on; nothing of it is scored.
"""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.trace import Trace
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.features import with_methods
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.tool_backends.bridge import Bridge
from opencode_env.tool_backends.description import BackendServerConfig
from opencode_env.tool_backends.instance import Instance, starting
from opencode_env.tool_backends.options import BackendsConfig
from opencode_env.tool_backends.reading import read_backends
from opencode_env.tool_backends.remote import Leftovers
from opencode_env.tool_backends.rollout_tools import RolloutTools, Start, all_started

BACKENDS_RECORD = "tool_backends"
"""Key in `trace.info` under which the calls of each backend are counted."""


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


_SHARED_SESSION = "global_shared_session"


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
        """The instance, made anew if it has died.

        Raises:
            ToolsetError: it did not start.
        """
        async with self._lock:
            found = self._instance
            if found is None or not await found.works():
                self._instance = None
                await self._stack.aclose()
                made = self._started(self.backend, _SHARED_SESSION)
                self._instance = found = await self._stack.enter_async_context(made)
            return found

    async def stop(self) -> None:
        async with self._lock:
            self._instance = None
            await self._stack.aclose()
