"""One running world: its calls one after the other, each step recorded before the agent sees what it did.

A call is stepped at most once, whoever repeats it and whoever stops waiting for it; a call after the end is refused and
changes nothing. What a world gave in a wrong type is its failure, named in words for its author, and never read as
something else: the text "false" is not an end and the text "1" no reward. It ends the episode.
"""

import asyncio
import inspect
import json
import math
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Annotated, Any, NoReturn

from pydantic import BaseModel, Field, JsonValue, StrictInt

from opencode_simulation.errors import CallRefused, InvalidAction, WorldError, failure_text
from opencode_simulation.ledger import FINISH, Ledger, LedgerEntry
from opencode_simulation.plain_json import (
    MAX_INTEGER,
    MIN_INTEGER,
    given_arguments,
    observation_json,
    text_of,
    world_json,
)
from opencode_simulation.world import TOOL_NAME, Step, World, declared

_Job = tuple[asyncio.Future[Any], Callable[[], Any]]
Seen = tuple[Step, JsonValue]


class PlayedWorld:
    """One world from its first method to its last, in a thread of its own, which a method that never returns keeps."""

    def __init__(self, kind: type[World]) -> None:
        self._kind = kind
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._started = False
        self.world: World
        self.made = False
        """Whether there is a world, as there is from `first` on."""
        self._tools: dict[str, Callable[..., Any]] = {}

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
        # Not one of `concurrent.futures`: on the path of a call it takes as long again as a small world's step.
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, partial(method, *arguments, **named)))
        return await future

    def stop(self) -> None:
        """Let the thread end when it has done what it was given."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            outcome: Any = None
            failure: Exception | None = None
            try:
                outcome = call()
            except BaseException as error:  # noqa: BLE001 - whatever a world raises is its caller's to judge
                failure = _raisable(error)
            try:
                future.get_loop().call_soon_threadsafe(_settle, future, outcome, failure)
            except RuntimeError:  # the loop is closed, so nobody waits
                return
            del job, future, call, outcome, failure

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
        """Return what the world says of its final state; None where it says nothing."""
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


def _settle(future: asyncio.Future[Any], outcome: Any, failure: Exception | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(outcome)
    else:
        future.set_exception(failure)


def _raisable(failure: BaseException) -> Exception:
    """Return what a world raised, or in its place what neither ends the loop nor looks like the end of whoever
    waits."""
    if isinstance(failure, Exception) and not isinstance(failure, StopIteration):
        return failure
    other = RuntimeError(f"{type(failure).__name__}: {failure}")
    other.__cause__ = failure
    return other


def _reward(value: Any) -> float:
    if not isinstance(value, str | bytes | bytearray):
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise TypeError(f"the reward is not a number: {error}") from error
    raise TypeError(f"the reward is not a number but {type(value).__name__}")


def _flag(value: Any, what: str) -> bool:
    if value not in (True, False):
        raise TypeError(f"{what} is neither true nor false but {type(value).__name__}")
    return bool(value)


REMEMBERED_CALLS = 64
"""Calls of one episode whose answers are kept for those who ask again."""
LEDGER_BYTES = 16 * 1024 * 1024
"""The most that one ledger holds: an agent's programs can call without end, and the environment keeps it all."""
MOST_WAITING = 64
"""Calls of one episode at once; more are refused, as who has sent one need not stay for its answer."""
_TOO_LONG = "the episode is over: its ledger is full"
CallKey = tuple[str, str]
"""The client of a call, and what the call has in common with itself when it is sent again."""
Seed = Annotated[StrictInt, Field(ge=MIN_INTEGER, le=MAX_INTEGER)]


class EpisodeSpec(BaseModel, frozen=True):
    """Tells which episode of a world is played, and its limits."""

    seed: Seed | None = None
    config: dict[str, JsonValue] = {}
    max_steps: int | None = Field(None, ge=1)
    """Steps after which the episode is truncated. None: no limit but the world's."""
    step_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds that any one call of the world's methods may take; longer is a failure of the world."""
    before: Ledger | None = None
    """The ledger of the episode that goes on in this one, which begins with the same steps."""


Event = LedgerEntry | str
"""What happens in an episode: a step, or how the world failed."""
Record = Callable[[Event], Awaitable[None]]
"""Takes what happens, in order; returns when it is safe."""


class Episode:
    """One world from `start` to `close`."""

    def __init__(self, kind: type[World], spec: EpisodeSpec, record: Record) -> None:
        self._kind = kind
        self._played = PlayedWorld(kind)
        self._spec = spec
        self._record = record
        self._lock = asyncio.Lock()
        self._waiting: set[asyncio.Task[str]] = set()
        self._calls: OrderedDict[CallKey, asyncio.Task[str]] = OrderedDict()
        self._over = "the episode has not begun"
        self._steps, self._total = 0, 0.0
        self._bytes = 0
        self._closed = False
        self._failed = False
        self._hung = False
        self.refused = 0

    @property
    def world(self) -> World:
        """The world; there is one from `start` on."""
        return self._played.world

    async def start(self) -> JsonValue:
        """Make the world, reset it, take the steps again that came before; the first observation as the agent sees it.
        A `WorldError` where it could not be made or reset, or gave something else than before."""
        async with self._lock:
            try:
                shown: JsonValue = await self._timed(self._played.first(self._spec.seed, self._spec.config))
                if (size := len(json.dumps(shown, ensure_ascii=False).encode())) > LEDGER_BYTES:
                    raise WorldError(f"the first observation has {size} bytes, of which a ledger takes {LEDGER_BYTES}")
            except Exception as error:  # whatever a world raises is its failure
                await self._fail(f"reset(): {failure_text(error)}")
                raise WorldError(f"world {self._kind.__name__}: reset(): {failure_text(error)}") from error
            self._over = ""
        if self._spec.before is not None:
            await self._take_again(self._spec.before, shown)
        return shown

    async def _take_again(self, before: Ledger, first: JsonValue) -> None:
        if first != before.summary.first_observation:
            await self._differ("reset()")
        for entry in before.steps:
            try:
                seen = await self._act(entry.tool, entry.arguments)
            except CallRefused as refused:
                await self._differ(f"step {entry.step} ({entry.tool}): {refused}")
            if seen != text_of(entry.observation):
                await self._differ(f"step {entry.step} ({entry.tool})")

    async def _differ(self, where: str) -> NoReturn:
        how = f"{where}: another observation than in the episode that was to go on; only a world that is the same for "
        how += "equal seeds and calls can be gone back to"
        await self._fail(how)
        raise WorldError(f"world {self._kind.__name__}: {how}")

    async def call(self, tool: str, arguments: Mapping[str, Any], key: CallKey | None = None) -> str:
        """Take one action, whose arguments are validated, and return what the agent sees of it; a `CallRefused` where
        nothing changed. A call with the `key` of an earlier one is that call, sent again."""
        if key is not None and (same := self._calls.get(key)) is not None:
            return await asyncio.shield(same)
        if len(self._waiting) >= MOST_WAITING:
            self.refused += 1
            raise CallRefused(f"{MOST_WAITING} calls are waiting already: call again when some are answered")
        # Of the context of its request a task that is remembered would keep the whole body.
        task = asyncio.create_task(self._act(tool, arguments), context=Context())
        self._waiting.add(task)
        task.add_done_callback(self._answered)
        if key is not None:
            self._calls[key] = task
            if len(self._calls) > REMEMBERED_CALLS:
                self._calls.popitem(last=False)
        return await asyncio.shield(task)  # who gives up waiting does not undo a step

    def _answered(self, task: asyncio.Task[str]) -> None:
        self._waiting.discard(task)
        if not task.cancelled():
            task.exception()  # whoever asked may have gone

    def forget_calls(self, client: str) -> None:
        """A client that begins anew numbers its calls anew: nothing that it asks is a repetition."""
        for key in [key for key in self._calls if key[0] == client]:
            del self._calls[key]

    async def read(self, method: Callable[..., Any], /, *arguments: Any, **named: Any) -> Any:
        """Read from the world between its calls, also after the end; raises `CallRefused` where there is nothing."""
        async with self._lock:
            if self._closed or self._failed:
                raise CallRefused(self._over)
            try:
                return await self._timed(self._played.run(method, *arguments, **named))
            except InvalidAction as error:
                raise CallRefused(str(error)) from None
            except Exception as error:  # whatever a world raises is its failure
                raise CallRefused(await self._fail(f"resource: {failure_text(error)}")) from error

    async def finish(self, patience: float | None = None) -> None:
        """Have the world judge its final state, unless its episode has ended; idempotent. It may take `patience`
        seconds, or as long as calls may; a world with a call still going on then is not judged."""
        async with self._locked_within(patience):
            if self._over or self._hung:
                return
            self._over = "the episode is over"
            try:
                seen = await self._timed(self._played.finish(), patience)
                if seen is None:
                    return
                entry = self._bounded(self._entry(FINISH, {}, seen))
            except Exception as error:  # noqa: BLE001 - whatever a world raises is its failure
                await self._fail(f"finish(): {failure_text(error)}")
                return
            # Why the episode ended is not the world's to say any more.
            await self._record(entry.model_copy(update={"terminated": False, "truncated": False}))

    async def close(self, patience: float | None = None) -> None:
        """Close the world when its last call is done; idempotent. Raises a `WorldError` where it could not be closed.

        The call may take `patience` seconds, or as long as calls may. A longer one is not a step, and keeps its world.
        """
        async with self._locked_within(patience):
            if self._closed:
                return
            self._closed, self._over = True, "the episode is over"
            try:
                if self._played.made and not self._hung:
                    await self._timed(self._played.run(self.world.close))
            except Exception as error:  # whatever a world raises is its failure
                raise WorldError(f"world {self._kind.__name__}: close(): {failure_text(error)}") from error
            finally:
                self._played.stop()

    @asynccontextmanager
    async def _locked_within(self, patience: float | None) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(patience):
                await self._lock.acquire()
        except TimeoutError:
            self._hung = True
            yield
            return
        try:
            yield
        finally:
            self._lock.release()

    async def _act(self, name: str, arguments: Mapping[str, Any]) -> str:
        async with self._lock:
            if self._over:
                self.refused += 1
                raise CallRefused(self._over)
            try:
                given = given_arguments(arguments)
                seen = await self._timed(self._played.act(name, arguments))
                entry = self._bounded(self._cut_off(self._entry(name, given, seen)))
            except InvalidAction as error:
                self.refused += 1
                raise CallRefused(str(error)) from None
            except Exception as error:  # whatever a world raises is its failure
                raise CallRefused(await self._fail(f"tool {name}: {failure_text(error)}")) from error
            self._steps, self._total = entry.step, self._total + entry.reward
            if entry.terminated or entry.truncated:
                self._over = "the episode is over: no further action counts"
            if self._closed:
                raise CallRefused(self._over)  # nobody waited for it
            await self._record(entry)
            return text_of(entry.observation)

    def _entry(self, name: str, given: dict[str, JsonValue], seen: Seen) -> LedgerEntry:
        step, shown = seen
        if not isinstance(step.info, Mapping):
            raise TypeError(f"info is not a mapping but {type(step.info).__name__}")
        info: Any = world_json(dict(step.info), "info")
        entry = LedgerEntry(
            step=self._steps + 1,
            tool=name,
            arguments=given,
            observation=shown,
            reward=_reward(step.reward),
            terminated=_flag(step.terminated, "terminated"),
            truncated=_flag(step.truncated, "truncated"),
            info=info,
        )
        if not math.isfinite(self._total + entry.reward):
            raise TypeError("the return is no longer finite")
        return entry

    def _cut_off(self, entry: LedgerEntry) -> LedgerEntry:
        if entry.step != self._spec.max_steps or entry.terminated or entry.truncated:
            return entry
        return entry.model_copy(update={"info": {**entry.info, "truncated_by": "max_steps"}, "truncated": True})

    def _bounded(self, entry: LedgerEntry) -> LedgerEntry:
        """The entry, or, where the ledger cannot take it in, one that ends the episode."""
        self._bytes += len(entry.model_dump_json().encode()) + 4096  # what a step costs beside its JSON
        if self._bytes <= LEDGER_BYTES:
            return entry
        changed = {"observation": _TOO_LONG, "info": {"truncated_by": "ledger_bytes"}, "truncated": True}
        return entry.model_copy(update=changed)

    async def _timed(self, work: Awaitable[Any], most: float | None = None) -> Any:
        seconds = self._spec.step_timeout if most is None else min(most, self._spec.step_timeout)
        try:
            async with asyncio.timeout(seconds) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            self._hung = True
            why = " (call_timeout)" if most is None else ""
            raise WorldError(f"did not return within {seconds:g} s{why}") from None

    async def _fail(self, how: str) -> str:
        """Record the failure, after which nothing more is played; returns what the agent is told."""
        self._failed = True
        self._over = "the simulation has failed; no further action counts"
        await self._record(f"world {self._kind.__name__}: {how}")
        return self._over
