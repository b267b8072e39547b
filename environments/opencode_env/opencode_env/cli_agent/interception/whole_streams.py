"""A model client whose streams are whole or fail, and come in one event.

verifiers 0.4 takes a stream for a finished turn when it ends with `[DONE]`, even if the provider sent an error in it or
never named a finish reason. The broken part then stands in the trace as a turn that would train, and some agents ask
again for ever. Here such a stream is a failed call, which the agent may try again.

Of an answer of several events a broken connection delivers some: an agent keeps the part, and runs a tool whose call
had arrived, before it asks again. One event is delivered or is not.

A stream that is kept alive has no status left for a failure, so a failure that may pass says so in its words too.
"""

import re
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from aiohttp import web
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.dialects.base import is_sse_done_event, parse_sse_event
from verifiers.v1.errors import ProviderError, RolloutError
from verifiers.v1.graph import PendingTurn
from verifiers.v1.interception.server import IDEMPOTENCY_KEY_HEADER
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.kept_logprobs import hear, hearing, is_asked_for
from opencode_env.cli_agent.interception.main_calls import require_turn
from opencode_env.cli_agent.interception.sound_calls import with_sound_calls
from opencode_env.cli_agent.interception.whole_text import whole_events
from opencode_env.cli_agent.interception.wrapped_client import WrappedClient

CHAT_COMPLETIONS = "/chat/completions"
"""The only wire format whose streams are checked; the others name their end themselves."""

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"[^"]')
_DONE = b"data: [DONE]\n\n"
_MAY_PASS = re.compile(r"429|50[0234]|524|server error")


class WholeStreams(WrappedClient):
    """Another client, with every chat-completions stream checked while it is read."""

    async def get_response(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        sampling: SamplingConfig,
        session_id: str | None = None,
        turn: PendingTurn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """One completion, which may be served as a stream."""
        with _worded():
            require_turn()
            response = await super().get_response(
                dialect, body, sampling, session_id=session_id, turn=turn, headers=headers
            )
        if is_asked_for():
            hear(response.raw)
        return with_sound_calls(response)

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
        with _worded():
            require_turn()
            reply = await super().relay(dialect, body, session_id=session_id, headers=headers)
        chunks = whole_events(reply.chunks)
        if dialect.upstream_path == CHAT_COMPLETIONS:
            chunks = hearing(chunks) if is_asked_for() else chunks
            chunks = in_one_event(whole(chunks), dialect)
        return RelayReply(reply.content_type, _told(chunks), reply.close)


async def _told(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    with _worded():
        try:
            async for chunk in chunks:
                yield chunk
        except RolloutError:
            raise
        except Exception as error:  # what verifiers takes for the provider's failure too
            raise ProviderError(str(error)) from error


@contextmanager
def _worded() -> Iterator[None]:
    """Let a failure that may pass say so in words that an agent takes for a reason to try again."""
    try:
        yield
    except RolloutError as error:
        status = getattr(error, "status_code", 502)
        if (status in (408, 409, 429) or status >= 500) and not _MAY_PASS.search(str(error)):
            error.args = (f"server error: {error}",)
        raise


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


async def in_one_event(chunks: AsyncIterator[bytes], dialect: Dialect[Any]) -> AsyncIterator[bytes]:
    """The answer of a stream as the events that verifiers makes of one that was not streamed: one, and `[DONE]`.

    Raises:
        ProviderError: at the end, when there was no `[DONE]`.
    """
    parser, done = dialect.stream_parser(), False
    async for chunk in chunks:
        done = done or is_sse_done_event(chunk)
        parser.feed(chunk)
    if not done:
        raise ProviderError("the model's stream ended before its terminal event")
    for event in dialect.stream_events(with_sound_calls(parser.finish()).raw or {}):
        yield event


def ended_by_its_answer(request: web.BaseRequest, response: web.StreamResponse) -> web.StreamResponse:
    """The same response; to a call with a key, without `[DONE]`.

    Whoever has a key asks again when the response breaks off, so nothing may stand behind the one event with which a
    whole answer has arrived.
    """
    if isinstance(response, web.Response) and isinstance(response.body, bytes):
        has_key = bool(request.headers.get(IDEMPOTENCY_KEY_HEADER))
        if has_key and response.content_type == "text/event-stream":
            response.body = response.body.removesuffix(_DONE)
    return response


def _message(error: object) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
