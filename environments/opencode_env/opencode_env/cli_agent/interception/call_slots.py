"""How many calls one rollout may make: the places for those at once, the queue for what there is a limited amount of,
and what they have used of a seat's budgets, kept up to date call by call so that asking costs nothing.

Invariant: what was given to somebody who is cancelled in the same moment goes to the next; never more than `places` are
taken, and beside the first none that the budget has no room for; after `close()` nobody gets one and nobody waits for
one. The token counts equal verifiers' own (`Trace.num_input_tokens`, `num_output_tokens`, `num_total_tokens`), which
walk every branch and would make a thousand calls quadratic.

Of the main calls each has its turn reserved, and a retry joins its first sending. A repeated request is a retry when it
says so (an idempotency key, or the mark of an SDK) or when whoever sent the first one is gone; otherwise equal requests
at the same time are samples, each with a turn of its own. Invariant: only a request with a turn of its own is sampled;
one that joined another is answered with the other's answer, or not at all.
"""

import asyncio
import contextlib
import math
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field

from aiohttp import web
from verifiers.v1.graph import MessageNode
from verifiers.v1.interception.server import is_retried_request
from verifiers.v1.session import RolloutLimits
from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.traces import lineage


class FirstCome:
    """Gives out what a subclass has."""

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
        turn: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((amount, turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._leave(amount)  # it was given in the same moment
            elif (amount, turn) in self._waiting:  # else it was passed over because it was cancelled, or sent away
                self._waiting.remove((amount, turn))
                self._serve()
            raise

    def _leave(self, amount: float = 1) -> None:
        self._put_back(amount)
        self._serve()

    def _serve(self) -> None:
        while self._waiting:
            amount, turn = self._waiting[0]
            if not turn.done() and not self._take(amount):
                return
            self._waiting.popleft()
            if not turn.done():
                turn.set_result(True)


CANCEL_SECONDS = 5.0
"""How long a cancelled call may take to end; the session it was served by is sealed after that anyway."""


class CallSlots(FirstCome):
    """A first-come-first-served semaphore of so many places that can be closed and waited empty; `room` says whether
    one more call has room in the seat's budgets beside so many that hold a place."""

    def __init__(self, places: float, room: Callable[[int], bool]) -> None:
        super().__init__()
        self.active = 0
        """Calls that hold a place now."""
        self.peak = 0
        """The most calls that held a place at once."""
        self.closed = False
        self._places = places
        self._room = room
        self._holders: set[asyncio.Task[object]] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def waiting(self) -> int:
        """Calls in the queue."""
        return sum(not turn.done() for _, turn in self._waiting)

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
            _, turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(False)

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
    """Counts of the calls on one trace."""

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
        """All calls: answered, failed, refused."""
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


@dataclass(frozen=True)
class _OnItsWay:
    request: web.Request
    served: asyncio.Event = field(default_factory=asyncio.Event)


class MainCalls:
    """Lets a rollout's main calls through, at most so many to the model at once; None neither bounds nor reserves."""

    def __init__(self, limits: RolloutLimits, places: int | None) -> None:
        self.tally = CallTally()
        self.reserves = places is not None
        self._limits = limits
        self._slots = CallSlots(math.inf if places is None else places, self._room)
        self._on_their_way: dict[object, _OnItsWay] = {}

    @property
    def used_up(self) -> str | None:
        """The first of the seat's limits that leaves no further call."""
        return self.tally.reached(self._limits)

    def _room(self, active: int) -> bool:
        return not self.reserves or self.tally.room(self._limits, active)

    async def let_through(self, request: web.Request, key: str | None, identity: bytes, until_end: ExitStack) -> bool:
        """Wait until the call, with its idempotency key, may be served; it is on its way `until_end`. Returns whether
        it has joined another and has no turn of its own."""
        known: object = key or identity
        first = self._on_their_way.get(known)
        if first is not None and (key is not None or is_retried_request(request.headers) or _left(first.request)):
            await first.served.wait()
            return True
        call = _OnItsWay(request)
        self._on_their_way[known] = call
        until_end.callback(self._end, known, call)
        await self._slots.place(until_end)
        call.served.set()
        return False

    def _end(self, known: object, call: _OnItsWay) -> None:
        call.served.set()
        if self._on_their_way.get(known) is call:
            del self._on_their_way[known]


def _left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
