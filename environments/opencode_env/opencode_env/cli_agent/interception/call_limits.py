"""What one rollout may take: model calls at once, tokens of its seat's budgets, time of the serving thread, memory for
request bodies, and bytes of its traces; kept up to date call by call, so that asking costs nothing.

Each main call has its place reserved, and a retry joins its first sending. A repeated request is a retry when it says
so (an idempotency key, or the mark of an SDK) or when whoever sent the first one is gone; otherwise equal requests at
the same time are samples, each with a place of its own. Only a request with a place of its own is sampled; one that
joined another is answered with the other's answer, or not at all.
"""

import asyncio
import contextlib
import hashlib
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from pydantic import BaseModel
from pydantic_core import to_json
from verifiers.v1.graph import MessageNode
from verifiers.v1.interception.server import is_retried_request
from verifiers.v1.session import RolloutLimits
from verifiers.v1.trace import ModelCall, Trace

from opencode_env.cli_agent.traces import lineage


class FirstCome:
    """Gives out what a subclass has, in the order of arrival; what was given to somebody who is cancelled in the same
    moment goes to the next."""

    def __init__(self) -> None:
        self._waiting: deque[tuple[float, asyncio.Future[bool]]] = deque()

    def _take(self, amount: float) -> bool:
        """Take so much, if there is so much now; returns whether there was."""
        raise NotImplementedError

    def _put_back(self, amount: float) -> None:
        raise NotImplementedError

    async def _enter(self, amount: float = 1) -> bool:
        """Wait for so much and take it; False, without it, for whoever was sent away."""
        if not self._waiting and self._take(amount):
            return True
        given: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, given))
        try:
            return await given
        except asyncio.CancelledError:
            if given.done() and not given.cancelled() and given.result():
                self._leave(amount)  # it was given in the same moment
            elif (amount, given) in self._waiting:  # else it was passed over because it was cancelled, or sent away
                self._waiting.remove((amount, given))
                self._serve()
            raise

    def _leave(self, amount: float = 1) -> None:
        self._put_back(amount)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            amount, given = self._waiting[0]
            if not given.done() and not self._take(amount):
                return
            self._waiting.popleft()
            if not given.done():
                given.set_result(True)


CANCEL_SECONDS = 5.0
"""How long a cancelled call may take to end; the session it was served by is sealed after that anyway."""


class CallSlots(FirstCome):
    """A first-come-first-served semaphore of so many places that can be closed and waited empty; `room` says whether
    one more call has room in the seat's budgets beside so many that are active."""

    def __init__(self, places: float, room: Callable[[int], bool]) -> None:
        super().__init__()
        self.active = 0
        self.peak = 0
        self.closed = False
        self._places = places
        self._room = room
        self._holders: set[asyncio.Task[object]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def waiting(self) -> int:
        """Return how many calls wait for a place."""
        return sum(not given.done() for _, given in self._waiting)

    async def place(self, until_end: ExitStack) -> bool:
        """Wait for a place and hold it until then; False, without one, when no more are given."""
        if self.closed or not await self._enter():
            return False
        task = asyncio.current_task()
        assert task is not None
        self._holders.add(task)
        until_end.callback(self._leave)
        until_end.callback(self._holders.discard, task)
        return True

    def _take(self, amount: float) -> bool:
        # The first call is judged by its session, which says why there is no room.
        if self.active > 0 and not (self.active < self._places and self._room(self.active)):
            return False
        self.active += 1
        self.peak = max(self.peak, self.active)
        self._empty.clear()
        return True

    def _put_back(self, amount: float) -> None:
        self.active -= 1
        if self.active == 0:
            self._empty.set()

    def close(self) -> None:
        """Give out no more places and send everybody in the queue away."""
        self.closed = True
        while self._waiting:
            _, given = self._waiting.popleft()
            if not given.done():
                given.set_result(False)

    async def drain(self, seconds: float) -> None:
        """Wait until no place is taken, for at most so long, then cancel who still holds one and wait for that."""
        self.close()
        if seconds > 0:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._empty.wait(), seconds)
        for task in list(self._holders):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._empty.wait(), CANCEL_SECONDS)


_TOKEN_LIMITS = ("max_input_tokens", "max_output_tokens", "max_total_tokens")


@dataclass
class CallTally:
    """Counts of the calls on one trace. The token counts equal verifiers' own (`Trace.num_input_tokens`,
    `num_output_tokens`, `num_total_tokens`), which walk every branch and would make a thousand calls quadratic."""

    turns: int = 0
    """Calls that were answered."""
    errors: int = 0
    """Calls that failed or were refused."""
    prompt_tokens: int = 0
    """Tokens of all prompts, a conversation's history each time it was sent."""
    completion_tokens: int = 0
    seconds: float = 0.0
    """Time at the model endpoint, summed over calls."""
    new_input_tokens: int = 0
    """Tokens of the prompts, a conversation's history once: what `max_input_tokens` caps."""
    _totals: dict[int, int] = field(default_factory=dict)
    _largest: dict[str, int] = field(default_factory=dict)
    """The most that one answered call has used of each budget."""

    @property
    def calls(self) -> int:
        """Return how many calls were answered, failed or were refused."""
        return self.turns + self.errors

    def add(self, call: ModelCall, nodes: list[MessageNode]) -> None:
        """Count one recorded call of the trace with these nodes."""
        if call.node is None:
            self.errors += 1
        else:
            self.turns += 1
        self.seconds += call.time.duration
        if call.usage is None:
            return
        self.prompt_tokens += call.usage.input_tokens
        self.completion_tokens += call.usage.completion_tokens
        new = 0
        if call.node is not None:
            before = lineage(nodes, nodes[call.node].parent)
            previous = next((self._totals.get(node, 0) for node in before if nodes[node].sampled), 0)
            new = max(0, call.usage.input_tokens - previous)
            self.new_input_tokens += new
            self._totals[call.node] = call.usage.total_tokens
        used = (new, call.usage.completion_tokens, new + call.usage.completion_tokens)
        for name, tokens in zip(_TOKEN_LIMITS, used, strict=True):
            self._largest[name] = max(self._largest.get(name, 0), tokens)

    def _used(self) -> dict[str, int]:
        return {
            "max_turns": self.turns,
            "max_input_tokens": self.new_input_tokens,
            "max_output_tokens": self.completion_tokens,
            "max_total_tokens": self.new_input_tokens + self.completion_tokens,
        }

    def reached(self, limits: RolloutLimits) -> str | None:
        """The name of the first of the seat's limits that is used up."""
        return self._first(limits, self._used())

    def room(self, limits: RolloutLimits, active: int) -> bool:
        """Whether the seat's limits leave room for one more call when each of `active` calls takes a turn and as many
        tokens as the largest so far; before the first one is answered, what it takes of a token budget is unknown."""
        unknown = not self._largest and self._first(limits, dict.fromkeys(_TOKEN_LIMITS, math.inf)) is not None
        reserved = {name: used + active * self._largest.get(name, 0) for name, used in self._used().items()}
        return not unknown and self._first(limits, reserved | {"max_turns": self.turns + active}) is None

    @staticmethod
    def _first(limits: RolloutLimits, used: Mapping[str, float]) -> str | None:
        caps = {name: getattr(limits, name) for name in used}
        return next((name for name, cap in caps.items() if cap is not None and used[name] >= cap), None)


class MainCalls:
    """Lets a rollout's main calls through, at most so many to the model at once."""

    def __init__(self, limits: RolloutLimits, places: int) -> None:
        self.tally = CallTally()
        self._limits = limits
        self._slots = CallSlots(places, lambda active: self.tally.room(limits, active))
        self._under_way: dict[object, tuple[web.Request, asyncio.Event]] = {}
        """The first sending of each call, and what is set once that is served or has ended."""

    @property
    def used_up(self) -> str | None:
        """The first of the seat's limits that leaves no further call."""
        return self.tally.reached(self._limits)

    async def let_through(self, request: web.Request, key: str | None, identity: bytes, until_end: ExitStack) -> bool:
        """Wait until the call, with its idempotency key, may be served; it is under way `until_end`. Returns whether
        it has joined another and has no place of its own."""
        known: object = key or identity
        first = self._under_way.get(known)
        if first is not None and (key is not None or is_retried_request(request.headers) or is_gone(first[0])):
            await first[1].wait()
            return True
        served = asyncio.Event()
        self._under_way[known] = call = (request, served)

        def end() -> None:
            served.set()
            if self._under_way.get(known) is call:
                del self._under_way[known]

        until_end.callback(end)
        await self._slots.place(until_end)
        served.set()
        return False


def is_gone(request: web.Request) -> bool:
    """Whether nobody waits for the answer to a request any more."""
    return request.transport is None or request.transport.is_closing()


SHARE = 0.1
"""Part of the serving thread's time that one rollout's requests may take for long; whoever takes more waits."""

BURST_SECONDS = 1.0
"""Work that a rollout may have done at once after a pause."""

SECONDS_PER_BYTE = 2e-8
SECONDS_PER_ENTRY = 4e-5
"""What the engine's work on one request comes to: parsing, matching, hashing and sending, by byte and by message."""

SECONDS_PER_REFUSAL = 1e-3
"""What a request costs that comes to nothing, however small it is: nothing else holds back who sends many of them."""


class CpuBudget:
    """A budget of work that refills with time: `SHARE` seconds of work per second. A rollout whose requests take less
    never waits here; one that takes more waits by itself, before its bytes are read, so that the connection holds them
    back."""

    def __init__(self) -> None:
        self._credit = BURST_SECONDS
        self._seen = time.monotonic()

    def charge(self, size: int, entries: int) -> None:
        """Count the work on a request of so many bytes and entries."""
        self._charge(size * SECONDS_PER_BYTE + entries * SECONDS_PER_ENTRY)

    def charge_refusal(self) -> None:
        """Count the work on a request that is answered with an error."""
        self._charge(SECONDS_PER_REFUSAL)

    async def wait(self) -> None:
        """Wait until what was charged has been worked off."""
        self._charge(0)
        while self._credit < 0:
            await asyncio.sleep(-self._credit / SHARE)
            self._charge(0)

    def _charge(self, seconds: float) -> None:
        now = time.monotonic()
        self._credit = min(BURST_SECONDS, self._credit + max(0.0, now - self._seen) * SHARE) - seconds
        self._seen = now


class BodyMemory(FirstCome):
    """Bytes of request bodies that one rollout may hold at once."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self._size = size
        self._free: float = size

    async def hold(self, size: int, until_end: ExitStack) -> None:
        """Wait for so many bytes, at most all there are, and hold them until then."""
        size = min(size, self._size)
        await self._enter(size)
        until_end.callback(self._leave, size)

    def _take(self, amount: float) -> bool:
        fits = amount <= self._free
        self._free -= amount if fits else 0
        return fits

    def _put_back(self, amount: float) -> None:
        self._free += amount


MAX_TRACE = "max_trace"
"""The stop of a rollout whose traces are full."""

MAX_PROGRAM_TEXT = 64 * 1024
"""Bytes of what one call of the agent's programs says anew, beyond which a trace keeps of its long texts beginning, end
and SHA-256. A call that is sampled from tokens is kept whole."""

_BYTES_PER_TOKEN = 40
"""Of a token's id, as an entry of a list."""


class TraceBytes:
    """Counts what one rollout's calls leave on its traces, which may hold `size` bytes. What the agent itself says is
    kept whole, and counted; of what a program of it says, long texts are cut."""

    def __init__(self, size: float) -> None:
        self.held = 0
        self._size = size
        self._counted: dict[str, int] = {}
        """How many nodes of the trace of each seat were counted."""

    @property
    def full(self) -> bool:
        """Whether no further call may leave anything."""
        return self.held >= self._size

    def take(self, trace: Trace[Any, Any, Any], record: ModelCall, *, program: bool) -> None:
        """Count what a recorded call has left on its trace; of a `program` of the agent's with its long texts cut."""
        seat = trace.agent.name
        start = self._counted.get(seat, 0)
        if program and record.node is not None:
            new = [trace.nodes[node] for node in lineage(trace.nodes, record.node) if node >= start]
            _cut(trace, [node for node in new if not node.sampled])
        if record.sampling is not None:
            size = bytes_of(record.sampling)
            if program and size > MAX_PROGRAM_TEXT:
                record.sampling = None
            else:
                self.held += size
        for node in trace.nodes[start:]:
            tokens = len(node.token_ids) * _BYTES_PER_TOKEN
            self.held += bytes_of(node.message) + tokens + sum(map(bytes_of, node.tools))
        self._counted[seat] = len(trace.nodes)


def bytes_of(value: BaseModel) -> int:
    """Bytes of the texts of a message or a setting, in memory or as JSON, whichever are more."""
    given = value.model_dump()
    held, left = 0, list[Any]([given])
    while left:
        one = left.pop()
        if isinstance(one, str):
            held += sys.getsizeof(one)
        elif isinstance(one, dict):
            left += [*one, *one.values()]
        elif isinstance(one, list):
            left += one
    return max(held, len(to_json(given)))


_SHOWN = 200
"""Characters at each end of a text that was cut."""


class _Shortening:
    """Cuts the texts of one call that are beyond `MAX_PROGRAM_TEXT` bytes in all, the newest first; short ones stay."""

    def __init__(self) -> None:
        self._left = MAX_PROGRAM_TEXT

    def of(self, value: BaseModel) -> Any:
        """The same value, with its long texts cut."""
        if bytes_of(value) <= _SHOWN:
            return value.model_copy()
        return type(value).model_validate(self._cut(value.model_dump()))

    def _cut(self, value: Any) -> Any:
        if isinstance(value, str):
            size = sys.getsizeof(value)
            if len(value) <= 3 * _SHOWN or size <= self._left:
                self._left -= size
                return value
            digest = hashlib.sha256(value.encode(errors="replace")).hexdigest()
            return f"{value[:_SHOWN]} [… {len(value)} characters in all, SHA-256 {digest} …] {value[-_SHOWN:]}"
        if isinstance(value, dict):
            return {key[: 3 * _SHOWN]: self._cut(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._cut(one) for one in value]
        return value


def _cut(trace: Trace[Any, Any, Any], nodes: Sequence[MessageNode]) -> None:
    """Cut what new nodes say, and the tools that came with them."""
    if sum(bytes_of(part) for node in nodes for part in (node.message, *node.tools)) <= MAX_PROGRAM_TEXT:
        return
    shortening = _Shortening()
    for node in nodes:
        node.message = shortening.of(node.message)
        short = {id(tool): shortening.of(tool) for tool in node.tools}
        node.tools = [*short.values()]
        trace.tools = [short.get(id(tool), tool) for tool in trace.tools]
