"""What an agent gets of its endpoint's answer: no keys, whole texts, sound calls; a stream is whole or a failed call,
and comes in one event.

verifiers 0.4 takes a stream for a finished turn when it ends with `[DONE]`, even if the provider sent an error in it or
never named a finish reason. The broken part then stands in the trace as a turn that would train, and some agents ask
again for ever. Here such a stream is a failed call, which the agent may try again.

Of an answer of several events a broken connection delivers some: an agent keeps the part, and runs a tool whose call
had arrived, before it asks again. One event is delivered or is not.
"""

import re

from agent_sandbox import surrogates
from aiohttp import web
from verifiers.v1.dialects.base import is_sse_done_event, parse_sse_event
from verifiers.v1.errors import ProviderError, RolloutError
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.chat_answers import stream_parser
from opencode_env.cli_agent.interception.sound_calls import with_sound_calls

_FINISH = re.compile(rb'"finish_reason"\s*:\s*"[^"]')
_DONE = b"data: [DONE]\n\n"


def mask_answer(call: Call, response: Response) -> Response:
    """Take the endpoint's keys out of an answer; one that was rendered here, from tokens, holds none."""
    masking = None if call.endpoint is None else call.endpoint.masking
    if masking is None or response.tokens is not None or (raw := masking.json(response.raw)) is response.raw:
        return response
    masked = call.reading.parse_response(call.reading.validate_response(raw))
    masked.raw = raw
    return masked


def make_calls_sound(call: Call, response: Response) -> Response:
    """Make the calls of an answer ones at which no agent fails."""
    return with_sound_calls(response)


def mask_events(call: Call, events: list[bytes]) -> list[bytes]:
    """Take the endpoint's keys out of a stream."""
    masking = None if call.endpoint is None else call.endpoint.masking
    return events if masking is None else masking.stream(events)


def whole_texts(call: Call, events: list[bytes]) -> list[bytes]:
    """Join or replace the lone surrogates of a stream."""
    return surrogates.whole_events(events)


def require_whole(call: Call, events: list[bytes]) -> list[bytes]:
    """Refuse a stream that broke, or a chat completion that holds an error or ends without a finish reason: other
    formats name their end themselves. Only events that can matter are parsed, because every token comes through here.

    Raises:
        ProviderError: it is not whole.
    """
    for event in events if call.is_chat else ():
        if b'"error"' in event and isinstance(said := parse_sse_event(event), dict) and said.get("error"):
            raise ProviderError(f"the model's stream ended with an error: {_message(said['error'])}")
    if isinstance(call.broken, RolloutError):
        raise call.broken
    if call.broken is not None:  # what verifiers takes for the provider's failure too
        raise ProviderError(str(call.broken)) from call.broken
    if call.is_chat and not any(map(_FINISH.search, events)):
        raise ProviderError("the model's stream ended without a finish reason")
    return events


def in_one_event(call: Call, events: list[bytes]) -> list[bytes]:
    """A chat completion as the events that verifiers makes of one that was not streamed: one, and `[DONE]`.

    Changes `answer`, which need not be read again.

    Raises:
        ProviderError: there was no `[DONE]`.
    """
    if not call.is_chat:
        return events
    parser = stream_parser(call)
    for event in events:
        parser.feed(event)
    if not any(map(is_sse_done_event, events)):
        raise ProviderError("the model's stream ended before its terminal event")
    call.answer = with_sound_calls(parser.finish())
    return call.dialect.stream_events(call.answer.raw or {})


def end_by_its_answer(call: Call, response: web.StreamResponse) -> web.StreamResponse:
    """The response to a call; to one with a key, without `[DONE]`.

    Whoever has a key asks again when the response breaks off, so nothing may stand behind the one event with which a
    whole answer has arrived.
    """
    if call.key and isinstance(response, web.Response) and response.content_type == "text/event-stream":
        assert isinstance(response.body, bytes)
        response.body = response.body.removesuffix(_DONE)
    return response


def _message(error: object) -> str:
    return str(error.get("message", error) if isinstance(error, dict) else error)[:500]
