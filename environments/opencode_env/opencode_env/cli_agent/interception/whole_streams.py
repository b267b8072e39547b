"""A model client whose streams are whole or fail.

verifiers 0.4 takes a stream for a finished turn when it ends with `[DONE]`, even if the provider sent an error in it or
never named a finish reason. The broken part then stands in the trace as a turn that would train, and some agents ask
again for ever. Here such a stream is a failed call, which the agent may try again.
"""

import re
from collections.abc import AsyncIterator, Mapping
from typing import Any

from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.dialects.base import parse_sse_event
from verifiers.v1.errors import ProviderError

from opencode_env.cli_agent.interception.whole_text import whole_events
from opencode_env.cli_agent.interception.wrapped_client import WrappedClient

CHAT_COMPLETIONS = "/chat/completions"
"""The only wire format whose streams are checked; the others name their end themselves."""

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"')


class WholeStreams(WrappedClient):
    """Another client, with every chat-completions stream checked while it is read."""

    async def relay(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        session_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RelayReply:
        """One stream.

        Raises:
            ProviderError: while the stream is read, when it holds an error or ends without a finish reason.
        """
        reply = await super().relay(dialect, body, session_id=session_id, headers=headers)
        chunks = whole_events(reply.chunks)
        if dialect.upstream_path == CHAT_COMPLETIONS:
            chunks = whole(chunks)
        return RelayReply(reply.content_type, chunks, reply.close)


async def whole(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same complete SSE events; only those that can matter are parsed, because every token comes through here.

    Raises:
        ProviderError: at an event that holds an error, and at the end when none named a finish reason.
    """
    finished = False
    async for chunk in chunks:
        if b'"error"' in chunk and isinstance(event := parse_sse_event(chunk), dict) and event.get("error"):
            raise ProviderError(f"the model's stream ended with an error: {_message(event['error'])}")
        finished = finished or _FINISH.search(chunk) is not None
        yield chunk
    if not finished:
        raise ProviderError("the model's stream ended without a finish reason")


def _message(error: object) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
