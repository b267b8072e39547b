"""The steps of an endpoint's answer: no keys, whole texts, sound calls, kept log-probabilities; a stream is whole or a
failed call, and comes in one event. A step that refuses an answer raises a `ProviderError`. At the end, what a failed
call says on the trace, in the log and to the agent.

verifiers 0.4 takes a stream for a finished turn when it ends with `[DONE]`, even if the provider sent an error in it or
never named a finish reason. The broken part then stands in the trace as a turn that would train, and some agents ask
again for ever. Here such a stream is a failed call, which the agent may try again.

Of an answer of several events a broken connection delivers some: an agent keeps the part, and runs a tool whose call
had arrived, before it asks again. One event is delivered or is not.
"""

import json
import logging
import re
import time
import uuid
from contextlib import suppress
from email.utils import parsedate_to_datetime
from typing import Any

import httpx
import numpy as np
from aiohttp import web
from renderers.client import MalformedGenerateResponseError
from rollout_sandbox import surrogates
from verifiers.v1.dialects.base import is_sse_done_event, parse_sse_event
from verifiers.v1.errors import ProviderError, RolloutError
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception.chat_answers import quoted, said_error, stream_parser, unusable
from opencode_env.cli_agent.interception.gateway import Call, error_answer
from opencode_env.cli_agent.traces import OF_THE_RUN
from opencode_env.errors import NoJsonError

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent.interception")


def require_evidence(call: Call, response: Response) -> Response:
    """Refuse an answer that must not be trained on."""
    if not call.trains:
        return response
    if response.finish_reason is None:
        broken = "the engine broke its answer off: its finish reason is neither stop nor length"
        raise ProviderError(broken, status_code=503)
    if response.tokens is None or not len(response.tokens.completion_ids):
        raise ProviderError("the engine answered without a single token", status_code=503)
    return response


def mask_answer(call: Call, response: Response) -> Response:
    """Take the endpoint's keys out of an answer; one that was rendered here, from tokens, holds none."""
    if call.masking is None or response.tokens is not None or (raw := call.masking.json(response.raw)) is response.raw:
        return response
    masked = call.reading.parse_response(call.reading.validate_response(raw))
    masked.raw = raw
    return masked


def mask_events(call: Call, events: list[bytes]) -> list[bytes]:
    """Take the endpoint's keys out of a stream."""
    return events if call.masking is None else call.masking.stream(events)


def mask_failure(call: Call, error: Exception) -> Exception:
    """Take the endpoint's keys out: some repeat the key that they were called with."""
    if call.masking is not None:
        call.masking.error(error)
    return error


def whole_texts(call: Call, events: list[bytes]) -> list[bytes]:
    """Join or replace the lone surrogates of a stream."""
    return surrogates.whole_events(events)


_DATA = re.compile(rb"^data:", re.MULTILINE)


def require_stream(call: Call, events: list[bytes]) -> list[bytes]:
    """Refuse what is not a stream: an error, a page, a whole completion."""
    if not call.is_chat or call.broken is not None or any(map(_DATA.search, events)):
        return events
    body = b"".join(event for event in events if not event.startswith(b":")).strip()
    if not body:
        return events
    text = body.decode(errors="replace")
    told = f"the endpoint answered a request for a stream with {call.content_type or 'no content type'}"
    try:
        said = json.loads(text)
    except (ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and said.get("choices"):
        told += " and a whole answer (it must stream; --env.gateway.ask-streamed false asks for that)"
    elif isinstance(said, dict) and said.get("error"):
        raise said_error(call, said["error"], f"{told} and an error: {quoted(text)}")
    raise unusable(call, f"{told}: {quoted(text)}")


_FINISH = re.compile(rb'"finish_reason"\s*:\s*"[^"]')


def require_whole(call: Call, events: list[bytes]) -> list[bytes]:
    """Refuse a stream that broke, or a chat completion that holds an error or ends without a finish reason; other
    formats name their end themselves. Only events that can matter are parsed: every token comes through here."""
    for event in events if call.is_chat else ():
        if b'"error"' in event and isinstance(said := parse_sse_event(event), dict) and (error := said.get("error")):
            message = error.get("message", error) if isinstance(error, dict) else error
            told = f"the model's stream ended with an error: {quoted(message)}"
            raise said_error(call, error, told, begun=True)
    if isinstance(call.broken, RolloutError):
        raise call.broken
    if call.broken is not None:  # what verifiers takes for the provider's failure too
        raise ProviderError(str(call.broken)) from call.broken
    if call.is_chat and not any(map(_FINISH.search, events)):
        told = "the model's stream ended without a finish reason"
        raise unusable(call, told) if call.framed or any(map(is_sse_done_event, events)) else ProviderError(told)
    return events


def in_one_event(call: Call, events: list[bytes]) -> list[bytes]:
    """A chat completion as the events that verifiers makes of one that was not streamed: one, and `[DONE]`.

    Changes `answer`, which need not be read again."""
    if not call.is_chat:
        return events
    parser = stream_parser(call)
    for event in events:
        parser.feed(event)
    if not call.framed and not any(map(is_sse_done_event, events)):
        raise ProviderError("the model's stream ended before its terminal event")
    call.answer = with_sound_calls(_without_calls(call, parser.finish()))
    return call.dialect.stream_events(call.answer.raw or {})


MAX_ARGUMENT_DEPTH = 500
"""How deep lists and objects of one call's arguments may nest; Python's reader gives up below a thousand."""

REPLACEMENT_CHARACTER = "\ufffd"
"""Stands in front of arguments that nest deeper."""

_OF_EVERY_OBJECT = frozenset(
    {"constructor", "hasOwnProperty", "isPrototypeOf", "propertyIsEnumerable", "toLocaleString", "toString", "valueOf"}
    | {"__proto__", "__defineGetter__", "__defineSetter__", "__lookupGetter__", "__lookupSetter__"}
)


def make_calls_sound(call: Call, response: Response) -> Response:
    """Make the calls of an answer ones at which no agent fails."""
    return with_sound_calls(_without_calls(call, response))


def _without_calls(call: Call, response: Response) -> Response:
    """Take the calls out of a summary that another seat's model made: at one the agent ends, and the policy would be
    scored for it."""
    if call.summarised_for is None or not response.message.tool_calls:
        return response
    response.message.tool_calls = None
    response.finish_reason = "stop" if response.finish_reason == "tool_calls" else response.finish_reason
    for choice in (response.raw or {}).get("choices") or ():
        choice["message"].pop("tool_calls", None)
        choice["finish_reason"] = response.finish_reason
    return response


def with_sound_calls(response: Response) -> Response:
    """The same answer, with calls at which no agent fails, in the message and in the JSON of a chat completion.

    Readers of JSON give up at some depth, each at its own, and the engine's fails with an answer that it has recorded:
    an agent would ask again, and a policy could be sampled anew whenever it likes. A call whose id is a name that every
    JavaScript object has, such as `toString`, which a policy can choose where the id is sampled, ends an agent that
    keeps its calls by id; one without an id ends an agent that needs it. So does a call of a "tool" of such a name in
    an answer that says that it stopped. Arguments that leave here every reader reads, or refuses at their first
    character; ids are keys like any other; an answer with calls does not say that it stopped. One that was cut off by
    its length says so, and may end there.
    """
    for call in response.message.tool_calls or ():
        call.arguments, call.id = sound_arguments(call.arguments), _sound_id(call.id) or f"call_{uuid.uuid4().hex}"
    for choice in (response.raw or {}).get("choices") or ():
        calls = (choice.get("message") or {}).get("tool_calls") or ()
        for raw in calls:
            function = raw.get("function")
            if isinstance(function, dict) and isinstance(function.get("arguments"), str):
                function["arguments"] = sound_arguments(function["arguments"])
            if isinstance(raw.get("id"), str):
                raw["id"] = _sound_id(raw["id"])
        for raw, call in zip(calls, response.message.tool_calls or (), strict=False):
            raw["id"] = raw.get("id") or call.id
        if calls and choice.get("finish_reason") == "stop":
            choice["finish_reason"] = "tool_calls"
    return response


def sound_arguments(text: str) -> str:
    """The same text, or one that is not JSON from its first character on."""
    if text.count("[") + text.count("{") <= MAX_ARGUMENT_DEPTH:
        return text
    plain = text.encode(errors="replace").replace(rb"\\", b"").replace(rb"\"", b"")
    signs = np.frombuffer(plain, np.uint8)
    signs = signs[np.cumsum(signs == ord('"'), dtype=np.uint8) & 1 == 0] | 0x20  # outside of strings; [ as {
    depth = np.cumsum((signs == ord("{")).view(np.int8) - (signs == ord("}")).view(np.int8), dtype=np.int32)
    return REPLACEMENT_CHARACTER + text if depth.size and depth.max() > MAX_ARGUMENT_DEPTH else text


def _sound_id(identity: str) -> str:
    return f"call_{identity}" if identity in _OF_EVERY_OBJECT else identity


LOGPROBS_RECORD = "logprobs"
"""Key in a trace's `info`: for each answer its node, its tokens as texts, their logprobs, and `completion_tokens`, as
many as its usage counts (None: it does not); absent without any.

verifiers passes logprobs on to the agent and forgets them. A seat asks for them with its sampling
(`--sampling.logprobs`); what an agent's programs ask for does not get here, and the agent is not told them. An entry
has one logprob for each token that the endpoint reported; some leave out those of what their tool parser holds back.
"""


def take_logprobs(call: Call, response: Response) -> Response:
    """Take the logprobs out of an answer. Changes `logprobs`."""
    if _is_asked_for(call):
        collect_logprobs(call, response.raw)
    return response


def take_logprobs_from_stream(call: Call, events: list[bytes]) -> list[bytes]:
    """Take the logprobs out of the events of a chat completion. Changes `logprobs`."""
    if call.is_chat and _is_asked_for(call):
        for event in events:
            if b'"logprobs"' in event:
                collect_logprobs(call, parse_sse_event(event))
    return events


def _is_asked_for(call: Call) -> bool:
    # Asking pydantic for what is not there is slow.
    sampling = None if call.session is None else call.session.ctx.sampling
    return sampling is not None and "logprobs" in sampling.model_fields_set and bool(getattr(sampling, "logprobs", 0))


def collect_logprobs(call: Call, answer: Any) -> None:
    """Take the logprobs out of an answer, or out of one event of it; what cannot be read is left out."""
    if not isinstance(answer, dict):
        return
    for choice in answer.get("choices") or ():
        with suppress(AttributeError, KeyError, TypeError, ValueError):
            reported = choice.pop("logprobs", None) or {}
            entries = [*(reported.get("content") or ()), *(reported.get("refusal") or ())]
            call.logprobs += [(str(entry["token"]), float(entry["logprob"])) for entry in entries]


def keep_logprobs(call: Call) -> None:
    """Put what was heard of the recorded call on its trace, if it was answered."""
    if call.session is None or call.record is None or call.record.node is None or not _is_asked_for(call):
        return
    usage = None if call.estimated else call.record.usage
    sampled = None if usage is None else usage.completion_tokens
    if call.logprobs:
        tokens, logprobs = zip(*call.logprobs, strict=True)
        entry = {"node": call.record.node, "tokens": list(tokens), "logprobs": list(logprobs)}
        call.session.trace.info.setdefault(LOGPROBS_RECORD, []).append({**entry, "completion_tokens": sampled})
    endpoint = call.session.ctx.client.base_url
    if sampled is not None and len(call.logprobs) < sampled and endpoint not in _told:
        _told.add(endpoint)
        told = (
            "the endpoint gave logprobs of %d of an answer's %d tokens, as some do in a stream with calls: "
            "--env.gateway.ask-streamed false asks for whole answers"
        )
        logger.warning(told, len(call.logprobs), sampled, extra=OF_THE_RUN)


_told: set[str] = set()
"""The endpoints that were warned of in this process."""


WAITING = (429, 503)
"""Statuses whose headers may say when to ask again."""

_WAITS = ("retry-after-ms", "retry-after")


def take_wait(call: Call, error: Exception) -> Exception:
    """Take up when a refused call may be made again, if its endpoint says so. Changes `wait` and `wait_headers`."""
    refused = getattr(error.__cause__, "response", None)
    if isinstance(refused, httpx.Response) and refused.status_code in WAITING:
        call.wait_headers = {name: refused.headers[name] for name in _WAITS if name in refused.headers}
        call.wait = max(map(_seconds, call.wait_headers.items()), default=0.0)
    return error


def _seconds(header: tuple[str, str]) -> float:
    """Return how long a header of a refusal asks to wait; 0 where it cannot be read."""
    name, value = header
    try:
        return max(0.0, float(value) / (1000 if name == "retry-after-ms" else 1))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return 0.0


def as_failed_call(call: Call, error: Exception) -> Exception:
    """Return what a client says of an answer that is not JSON, and a training client of a request that its renderer has
    no form for, or an answer without evidence. Changes `unusable`."""
    if isinstance(error, NoJsonError):
        return unusable(call, f"{error}: {quoted(error.text)}")
    if call.trains:
        if isinstance(error, NotImplementedError):
            return ProviderError(f"the training client cannot ask this: {error}", status_code=400)
        if isinstance(error, MalformedGenerateResponseError):
            told = f"the engine's answer cannot be trained on: {error}"
            return ProviderError(told) if _OF_ONE_SAMPLE.search(told) else unusable(call, told)
        if isinstance(error, ProviderError) and error.status_code in (403, 404):
            error.args = (f"{error} ({_NO_GENERATE})",)
    return error


_OF_ONE_SAMPLE = re.compile("must be finite|sampling evidence")
_NO_GENERATE = "vLLM from 0.30 on serves /inference/v1/generate only when it is started with --enable-scale-out"


_MOST_CHARACTERS = 8000
"""Of the text of a failed call."""


def note_unusable(call: Call, error: Exception) -> Exception:
    """Say on the trace whether the endpoint answered with something else than an answer."""
    call.gateway.call_failed(unusable=call.unusable)
    return error


def shorten(call: Call, error: Exception) -> Exception:
    """Leave the head and the tail, in one of which providers name the cause: some repeat the whole request."""

    def shortened(text: str) -> str:
        half = _MOST_CHARACTERS // 2
        return text if len(text) <= _MOST_CHARACTERS else f"{text[:half]} [… left out …] {text[-half:]}"

    error.args = tuple(shortened(part) if isinstance(part, str) else part for part in error.args)
    return error


_MAY_PASS = re.compile(r"429|50[0234]|524|server error")


def say_that_it_may_pass(call: Call, error: Exception) -> Exception:
    """Let a failure that may pass say so in words that an agent takes for a reason to try again: a stream that is kept
    alive has no status left for it."""
    status = getattr(error, "status_code", 502)
    if _is_hopeless(call):
        return error
    may_pass = isinstance(error, RolloutError) and (status in (408, 409, 429) or status >= 500)
    if may_pass and not _MAY_PASS.search(str(error)):
        error.args = (f"server error: {error}",)
    return error


def _is_hopeless(call: Call) -> bool:
    """Whether an endpoint answered a rollout's first call with what is not one: it would do so again. Later it may
    have been a moment's."""
    tally = call.gateway.calls.tally if call.sub is None else call.sub.session.tally
    return call.unusable and tally.turns == 0


def end_by_its_answer(call: Call, response: web.StreamResponse) -> web.StreamResponse:
    """The response to a call; to one with a key, without `[DONE]`. Whoever has a key asks again when the response
    breaks off, so nothing may stand behind the one event with which a whole answer has arrived."""
    if call.key and isinstance(response, web.Response) and response.content_type == "text/event-stream":
        assert isinstance(response.body, bytes)
        response.body = response.body.removesuffix(b"data: [DONE]\n\n")
    return response


NOT_AGAIN = "the model endpoint gives no answer that can be used, and would give none if it was asked again"
"""What an agent is told then: a text in which no agent finds a reason to try again. The trace says the rest."""


def say_that_it_is_hopeless(call: Call, response: web.StreamResponse) -> web.StreamResponse:
    """The response to a call that would fail again, of a status at which nobody tries that."""
    failed = isinstance(response, web.Response) and response.status >= 400
    return error_answer(call.dialect, NOT_AGAIN, 400) if failed and _is_hopeless(call) else response


def say_when(call: Call, response: web.StreamResponse) -> web.StreamResponse:
    """The response to a call that the endpoint refused, with when it may be made again."""
    if response.status in WAITING and not response.prepared:
        response.headers.update(call.wait_headers)
    return response
