"""How long the calls of a rollout's own program wait for the model endpoint, as this process sees it.

Invariant: a call counts from its request to the endpoint, or from when a stream last brought more of its answer, until
that is whole; neither what waits here before, nor an agent that does not read its answer, nor an answer that the policy
makes long makes it longer.
"""

import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from verifiers.v1 import SamplingConfig
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.own_calls import is_by_program
from opencode_env.cli_agent.interception.wrapped_client import WrappedClient

_under_way: dict[str, dict[object, float]] = {}
"""When each call was sent or its stream last went on, by trace id."""


def longest_under_way(trace_id: str) -> float:
    """Seconds for which the endpoint has been silent on some call of a rollout's own program; 0 without one."""
    sent = _under_way.get(trace_id)
    return time.monotonic() - min(sent.values()) if sent else 0.0


@contextmanager
def _at_the_endpoint(trace_id: str | None) -> Iterator[Callable[[], None]]:
    """Yields what says that the answer goes on."""
    if trace_id is None or is_by_program():
        yield lambda: None
        return
    call = object()
    sent = _under_way.setdefault(trace_id, {})

    def goes_on() -> None:
        sent[call] = time.monotonic()

    goes_on()
    try:
        yield goes_on
    finally:
        del sent[call]
        if not sent:
            _under_way.pop(trace_id, None)


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
