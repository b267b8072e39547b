"""What waits at the model endpoint, as this process sees it: how long the calls of a rollout's own program do, and how
many requests of the programs that it started are beside them, which can be why it fails the agent's own calls.

Invariant: a call counts from its request to the endpoint, or from when a stream last brought more of its answer, until
that is whole; neither what waits here before, nor an agent that does not read its answer, nor an answer that the policy
makes long makes it longer. A request of a program counts whether it is answered, is given up or is no model call.
"""

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from verifiers.v1 import SamplingConfig
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.own_calls import current_caller
from opencode_env.cli_agent.interception.wrapped_client import WrappedClient

_KEPT = 1000


@contextmanager
def _at_the_endpoint(session_id: str | None) -> Iterator[Callable[[], None]]:
    """Yields what says that the answer goes on."""
    caller = current_caller()
    if caller is None or not caller.own or caller.trace_id != session_id:
        yield lambda: None
        return
    call, sent = object(), caller.program.under_way

    def goes_on() -> None:
        sent[call] = time.monotonic()

    goes_on()
    try:
        yield goes_on
    finally:
        del sent[call]


class TimedCalls(WrappedClient):
    """Another client, whose calls are known while they are under way."""

    async def get_response(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        sampling: SamplingConfig,
        session_id: str | None = None,
        turn: PendingTurn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One completion."""
        with _at_the_endpoint(session_id):
            return await super().get_response(
                dialect, body, sampling, session_id=session_id, turn=turn, headers=headers
            )

    async def relay(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        session_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RelayReply:
        """One stream, which is under way until it is closed."""
        with ExitStack() as sending:
            goes_on = sending.enter_context(_at_the_endpoint(session_id))
            reply = await super().relay(dialect, body, session_id=session_id, headers=headers)
            until_closed = sending.pop_all()

        async def close() -> None:
            until_closed.close()
            await reply.close()

        async def chunks() -> AsyncIterator[bytes]:
            async for chunk in reply.chunks:
                if not chunk.startswith(b":"):  # a comment keeps the connection alive, and is no answer
                    goes_on()
                yield chunk

        return RelayReply(reply.content_type, chunks(), close)


class ProgramLoad:
    """The newest requests of one rollout's programs."""

    def __init__(self) -> None:
        self._requests: deque[list[float]] = deque(maxlen=_KEPT)

    @contextmanager
    def carrying(self) -> Iterator[None]:
        """One request is at the endpoint until the end of the block."""
        span = [time.time(), float("inf")]
        self._requests.append(span)
        try:
            yield
        finally:
            span[1] = time.time()

    def between(self, start: float, end: float) -> int:
        """How many requests were at the endpoint at some moment of that time."""
        return sum(begun <= end and ended >= start for begun, ended in self._requests)
