"""The main calls of one rollout that are on their way: each has its turn reserved, and a retry joins its first sending.

A repeated request is a retry when it says so (an idempotency key, or the mark of an SDK) or when whoever sent the first
one is gone; otherwise equal requests at the same time are samples, each with a turn of its own. Invariant: only a
request with a turn of its own is sampled; one that joined another is answered with the other's answer, or not at all.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from aiohttp import web
from verifiers.v1.errors import ProviderError
from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER, RETRY_COUNT_HEADER, is_retried_request
from verifiers.v1.session import RolloutLimits

from opencode_env.cli_agent.interception.call_tally import CallTally
from opencode_env.cli_agent.interception.gate import CallGate
from opencode_env.cli_agent.interception.request_body import Body

_joined: ContextVar[bool] = ContextVar("opencode_env_joined_call", default=False)


def require_turn() -> None:
    """Refuse to sample for a request that has no turn of its own.

    Raises:
        ProviderError: it has joined a call that failed meanwhile; it may be sent again.
    """
    if _joined.get():
        raise ProviderError("server error: the call that this one repeats has failed", status_code=503)


@dataclass(frozen=True)
class _OnItsWay:
    """One call that waits or is served."""

    request: web.Request
    served: asyncio.Event = field(default_factory=asyncio.Event)


class MainCalls:
    """Lets a rollout's main calls through.

    Args:
        limits: of the seat.
        places: the most calls at the model at once; None neither bounds nor reserves.
    """

    def __init__(self, limits: RolloutLimits, places: int | None) -> None:
        self.tally = CallTally()
        self._limits = limits
        self._reserve = places is not None
        self._gate = CallGate(math.inf if places is None else places, self._room)
        self._on_their_way: dict[object, _OnItsWay] = {}

    def _room(self, active: int) -> bool:
        return not self._reserve or self.tally.room(self._limits, active)

    @asynccontextmanager
    async def let_through(self, request: web.Request, body: Body) -> AsyncIterator[Mapping[str, str]]:
        """Wait until the call may be served; yields further headers that tell the engine which call it is."""
        key = request.headers.get(IDEMPOTENCY_KEY_HEADER)
        marked = key is not None or is_retried_request(request.headers)
        identity: object = key or body.identity
        first = self._on_their_way.get(identity)
        if first is not None and (marked or _left(first.request)):
            await first.served.wait()
            token = _joined.set(self._reserve)
            try:
                yield {} if marked else {RETRY_COUNT_HEADER: "1"}
            finally:
                _joined.reset(token)  # a connection's requests share a context
            return
        call = _OnItsWay(request)
        self._on_their_way[identity] = call
        try:
            async with self._gate.place():
                call.served.set()
                yield {}
        finally:
            call.served.set()
            if self._on_their_way.get(identity) is call:
                del self._on_their_way[identity]


def _left(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()
