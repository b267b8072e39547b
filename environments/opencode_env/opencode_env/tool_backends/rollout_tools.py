"""The tool backends of one rollout, as its task, its agent and its record know them."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypedDict

import verifiers.v1 as vf
from mcp.types import CallToolResult, TextContent, Tool
from verifiers.v1.errors import ToolsetError

from opencode_env.tool_backends.bridge import Bridge
from opencode_env.tool_backends.description import tool_prefix
from opencode_env.tool_backends.errors import BrokenBackendError
from opencode_env.tool_backends.instance import Instance

Start = Callable[[], Awaitable[Instance]]

_CALLS_AT_ONCE = 16
"""Of one rollout at one backend; more wait, so that it cannot starve its neighbours at a shared one."""
_MOST_WAITING = 64
"""More are refused: who has sent one need not stay for its answer, and this process keeps what it holds."""
_OVER = "The tool server has failed; this conversation ends here."


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
            return _refusal(f"{_MOST_WAITING} calls are waiting already: call again when some are answered.")
        self._waiting += 1
        try:
            return await self._called(tool, arguments)
        finally:
            self._waiting -= 1

    async def _called(self, tool: str, arguments: dict[str, Any]) -> CallToolResult:
        tally = self._rollout.record[self._name]
        async with self._places:
            if self._rollout.failure is not None or self.instance is None:
                return _refusal()
            if not _is_json(arguments):
                return _refusal("The arguments are not JSON.")
            # Who has asked a shared one nothing before it was gone cannot have broken it.
            blameless = not tally["calls"] and self.instance.suspect
            started = time.monotonic()
            tally["calls"] += 1
            try:
                result = await self.instance.call(tool, arguments)
            except ToolsetError as error:
                failure = error if blameless else BrokenBackendError(str(error))
                self._rollout.failure = self._rollout.failure or failure
                return _refusal()
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


def _refusal(why: str = _OVER) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=why)], is_error=True)


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
