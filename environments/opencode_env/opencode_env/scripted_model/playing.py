"""Plays one reply with its faults onto one HTTP response.

Invariant: a reply without faults always arrives whole, with a finish reason and (streaming) `[DONE]`; every
deviation from that was asked for by a `Fault`.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aiohttp import web

from opencode_env.scripted_model import wire
from opencode_env.scripted_model.reply import BREAKS, Fault, FaultKind, Reply
from opencode_env.scripted_model.request import ChatRequest
from opencode_env.scripted_model.wire import Logprobs

HTML_PAGE = "<html><head><title>502</title></head><body>scripted model: an HTML page, not JSON</body></html>"
GARBAGE = b'data: {"id": "scripted-model", "choices": [{"delta": {"content\n\n'


class ReplyCut(Exception):
    """The connection was closed in the middle of a reply, as a fault asked for."""


@dataclass(frozen=True)
class Performance:
    """One reply to one request, the faults that spoil this attempt, and how it is cut into chunks."""

    request: ChatRequest
    reply: Reply
    faults: Sequence[Fault]
    envelope: wire.Envelope
    prompt_tokens: int
    chunk_characters: int
    window: int | None

    def fault(self, *kinds: FaultKind) -> Fault | None:
        """The first fault of one of these kinds."""
        return next((fault for fault in self.faults if fault.kind in kinds), None)

    async def play(self, http: web.Request) -> web.StreamResponse:
        """Send the reply.

        Raises:
            ReplyCut: a fault closed the connection.
            ConnectionError: the client went away.
        """
        if (delay := self.fault(FaultKind.DELAY)) is not None:
            await asyncio.sleep(delay.seconds or 0)
        if (hang := self.fault(FaultKind.HANG)) is not None and hang.after is None:
            await _silence(http, hang)
        if (instead := self._another_answer()) is not None:
            return instead
        return await (self._stream(http) if self.request.body.stream else self._body(http))

    def _another_answer(self) -> web.Response | None:
        """The answer that a fault puts in place of the reply."""
        fault = self.fault(FaultKind.STATUS, FaultKind.OVERFLOW, FaultKind.HTML)
        if fault is None:
            return None
        if fault.kind is FaultKind.HTML:
            return web.Response(text=fault.body or HTML_PAGE, content_type="text/html")
        if fault.kind is FaultKind.OVERFLOW:
            return overflow_response(fault.window or self.window or 4096, self.prompt_tokens)
        status = fault.status or 500
        headers = {} if fault.retry_after is None else {"retry-after": f"{fault.retry_after:g}"}
        if fault.body is not None:
            return web.Response(status=status, text=fault.body, headers=headers)
        error = wire.error_body("scripted model: a fault of its script", "scripted_fault", status)
        return web.json_response(error, status=status, headers=headers)

    async def _stream(self, http: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream", "cache-control": "no-cache"})
        await response.prepare(http)
        slow = self.fault(FaultKind.SLOW)
        if slow is None:
            await response.write(b"".join(self._events()))
        else:
            for event in self._events():
                await response.write(event)
                await asyncio.sleep(slow.seconds or 0)
        if (broken := self.fault(*BREAKS)) is not None:
            await _break_stream(http, response, broken)
        await response.write_eof()
        return response

    def _events(self) -> Iterator[bytes]:
        """The events of the stream, up to where a fault breaks it."""
        envelope, reply = self.envelope, self.reply
        pieces = wire.pieces_of(reply, self.chunk_characters)
        if (broken := self.fault(*BREAKS)) is not None:
            pieces = wire.first_pieces(pieces, reply.characters // 2 if broken.after is None else broken.after)
        logprobs = Logprobs(bool(self.request.body.logprobs))
        yield wire.sse(wire.chunk(envelope, {"role": "assistant", "content": None if reply.null_text else ""}, None))
        for piece in pieces:
            yield wire.sse(wire.chunk(envelope, wire.delta_of(envelope, reply, piece), logprobs.of(piece.text)))
        if broken is not None:
            return
        if envelope.finish:
            yield wire.sse(wire.chunk(envelope, {}, logprobs.of("", last=True), reply.final_reason))
        if self.request.include_usage and envelope.usage is not None:
            yield wire.sse(wire.usage_chunk(envelope))
        if self.fault(FaultKind.NO_DONE) is None:
            yield wire.DONE

    async def _body(self, http: web.Request) -> web.StreamResponse:
        broken = self.fault(*BREAKS)
        logprobs = Logprobs(bool(self.request.body.logprobs))
        body = json.dumps(wire.completion(self.envelope, self.reply, logprobs)).encode()
        if broken is not None and broken.kind is FaultKind.SSE_ERROR:
            return web.json_response(_error_in_the_middle(broken))
        if broken is not None and broken.kind is FaultKind.MALFORMED_SSE:
            return web.Response(body=body[: len(body) // 2], content_type="application/json")
        slow = self.fault(FaultKind.SLOW)
        response = web.StreamResponse(headers={"content-type": "application/json"})
        response.content_length = len(body)
        await response.prepare(http)
        whole = body if broken is None else body[: len(body) // 2]
        step = len(whole) if slow is None else self.chunk_characters
        for start in range(0, len(whole), step):
            await response.write(whole[start : start + step])
            if slow is not None:
                await asyncio.sleep(slow.seconds or 0)
        if broken is not None:
            await _break_stream(http, response, broken)
        await response.write_eof()
        return response


def overflow_response(window: int, prompt_tokens: int) -> web.Response:
    """The 400 of a prompt that is longer than the window (tokens), in vLLM's words."""
    message = (
        f"This model's maximum context length is {window} tokens. However, your request has {prompt_tokens} "
        "input tokens. Please reduce the length of the input messages."
    )
    return web.json_response(wire.error_body(message, "BadRequestError", 400), status=400)


def _error_in_the_middle(fault: Fault) -> wire.Json:
    return wire.error_body(fault.body or "scripted model: an error in mid-reply", "scripted_fault", 500)


async def _break_stream(http: web.Request, response: web.StreamResponse, fault: Fault) -> None:
    """Do in mid-reply what the fault says."""
    if fault.kind is FaultKind.SSE_ERROR:
        await response.write(wire.sse(_error_in_the_middle(fault)) + wire.DONE)
    elif fault.kind is FaultKind.MALFORMED_SSE:
        await response.write(GARBAGE)
    elif fault.kind is FaultKind.HANG:
        await _silence(http, fault)
    else:
        _close(http)


async def _silence(http: web.Request, fault: Fault) -> None:
    """Say nothing until the client goes (this task is then cancelled) or the time is over, then close."""
    if fault.seconds is None:
        await asyncio.Event().wait()
    await asyncio.sleep(fault.seconds or 0)
    _close(http)


def _close(http: web.Request) -> None:
    """Close the connection after what was written so far, and raise `ReplyCut`."""
    if http.transport is not None:
        http.transport.close()
    raise ReplyCut


_REMEMBERED_CALLS = 100_000


class Attempts:
    """The only state the server keeps between requests; of very many calls it forgets the oldest."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, int] = OrderedDict()

    def faults_of(self, request: ChatRequest, reply: Reply) -> tuple[Fault, ...]:
        """The faults of the reply that spoil this attempt; attempts count only where a fault depends on them."""
        if all(fault.attempts is None for fault in reply.faults):
            return reply.faults
        attempt = self._counts.pop(request.call_key, 0)
        self._counts[request.call_key] = attempt + 1
        if len(self._counts) > _REMEMBERED_CALLS:
            self._counts.popitem(last=False)
        return tuple(fault for fault in reply.faults if fault.attempts is None or attempt < fault.attempts)
