"""The main calls of one rollout that are on their way: each has its turn reserved, and a retry joins its first sending.

A repeated request is a retry when it says so (an idempotency key, or the mark of an SDK) or when whoever sent the first
one is gone; otherwise equal requests at the same time are samples, each with a turn of its own. Invariant: only a
request with a turn of its own is sampled; one that joined another is answered with the other's answer, or not at all.
"""

import asyncio
import math
from contextlib import ExitStack
from dataclasses import dataclass, field

from aiohttp import web
from verifiers.v1.interception.server import is_retried_request
from verifiers.v1.session import RolloutLimits

from opencode_env.cli_agent.interception.call_slots import CallSlots
from opencode_env.cli_agent.interception.call_tally import CallTally


@dataclass(frozen=True)
class _OnItsWay:
    """One call that waits or is served."""

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
