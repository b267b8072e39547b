"""One world's methods, in its thread: what they give, as the agent sees it.

Invariant: what is not a step, or no observation of JSON and text, does not pass; it is raised, in words for the world's
author.
"""

import asyncio
import inspect
import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

from pydantic import JsonValue

from opencode_simulation.plain_json import observation_json
from opencode_simulation.world import TOOL_NAME, Step, World, declared

_Job = tuple[asyncio.Future[Any], Callable[..., Any], tuple[Any, ...], dict[str, Any]]


class WorldThread:
    """Runs one world's methods; a method that never returns keeps the thread, and nothing else."""

    def __init__(self) -> None:
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = False

    async def run(self, method: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Call the method in the thread, or await it here if it is a coroutine function."""
        if inspect.iscoroutinefunction(method):
            try:
                return await method(*arguments, **named)
            except (SystemExit, KeyboardInterrupt) as ending:  # it would end the loop, and all worlds on it
                raise RuntimeError(f"{type(ending).__name__}: {ending}") from ending
        if not self._started:
            self._started = True
            # A daemon: a method that hangs must not keep the server's process alive.
            threading.Thread(target=self._work, daemon=True, name="world").start()
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, method, arguments, named))
        return await future

    def stop(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, method, arguments, named = job
            try:
                outcome: Any = method(*arguments, **named)
                failure: BaseException | None = None
            except BaseException as error:  # noqa: BLE001 - whatever a world raises is its caller's to judge
                outcome, failure = None, error
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, outcome, failure)
            except RuntimeError:  # the loop is closed, so nobody waits
                return
            del job, future, outcome, failure


def _settle(future: asyncio.Future[Any], outcome: Any, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(outcome)
    elif isinstance(failure, StopIteration) or not isinstance(failure, Exception):
        # As it is it would end the loop, or look like the end of whoever waits.
        other = RuntimeError(f"{type(failure).__name__}: {failure}")
        other.__cause__ = failure
        future.set_exception(other)
    else:
        future.set_exception(failure)


Seen = tuple[Step, JsonValue]
"""A step, and what the agent sees of it."""


class PlayedWorld(WorldThread):
    """One world from its first method to its last."""

    def __init__(self, kind: type[World]) -> None:
        super().__init__()
        self._kind = kind
        self.world: World
        self.made = False
        """Whether there is a world, as there is from `first` on."""
        self._tools: dict[str, Callable[..., Any]] = {}

    async def first(self, seed: int | None, config: Mapping[str, JsonValue]) -> JsonValue:
        """Make the world and reset it; the first observation."""
        self.world = await self.run(self._kind)
        self.made = True
        self._tools = declared(self.world, TOOL_NAME)
        found = await self.run(self.world.reset, seed, {**self._kind.default_config(), **config})
        if isinstance(found, tuple) and len(found) == 2 and (found[1] is None or isinstance(found[1], Mapping)):
            raise TypeError("it gave a pair: return the observation alone, without an info")
        shown = await self._shown(found)
        if shown is None:
            raise TypeError("it gave None: return the first observation")
        return shown

    async def act(self, name: str, arguments: Mapping[str, Any]) -> Seen:
        """Take an action: one job of the thread where nothing in it is a coroutine function."""
        tool = self._tools[name]
        if not any(map(inspect.iscoroutinefunction, (tool, self.world.step, self.world.formatter()))):
            whole: Seen = await self.run(self._stepped, tool, arguments)
            return whole
        result = await self.run(tool, **arguments)
        step = result if isinstance(result, Step) else Step(*await self.run(self.world.step, result))
        return step, await self._shown(step.observation)

    async def finish(self) -> Seen | None:
        """What the world says of its final state; None where it says nothing."""
        if type(self.world).finish is World.finish or hasattr(type(self.world).finish, TOOL_NAME):
            return None  # there is none, or it is the agent's to call
        found = await self.run(self.world.finish)
        if found is None:
            return None
        if not isinstance(found, tuple):
            raise TypeError(f"it gave no Step but {type(found).__name__}")
        step = Step(*found)
        return step, await self._shown(step.observation)

    def _stepped(self, tool: Callable[..., Any], arguments: Mapping[str, Any]) -> Seen:
        result = tool(**arguments)
        step = result if isinstance(result, Step) else Step(*self.world.step(result))
        return step, observation_json(self.world.formatter()(step.observation))

    async def _shown(self, observation: Any) -> JsonValue:
        return observation_json(await self.run(self.world.formatter(), observation))
