"""`ScriptedModel`: an OpenAI-compatible chat-completions server whose answers come from a policy.

Inside `async with` it listens and answers; afterwards its port is free and no request is waiting.
"""

import asyncio
import itertools
import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from aiohttp import web

from opencode_env.scripted_model import wire
from opencode_env.scripted_model.policy import (
    BREAKS,
    LABEL,
    MODEL_ID,
    ChatBody,
    ChatRequest,
    Fault,
    FaultKind,
    Policy,
    Reply,
    Usage,
    tokens_of,
)
from opencode_env.scripted_model.wire import Logprobs

HTML_PAGE = "<html><head><title>502</title></head><body>scripted model: an HTML page, not JSON</body></html>"
GARBAGE = b'data: {"id": "scripted-model", "choices": [{"delta": {"content\n\n'


class _ReplyCut(Exception):
    """The connection was closed in the middle of a reply, as a fault asked for."""


@dataclass(frozen=True)
class PlannedReply:
    """One reply to one request, the faults that spoil this attempt, and how it is cut into chunks."""

    request: ChatRequest
    reply: Reply
    faults: Sequence[Fault]
    envelope: wire.ReplyFields
    prompt_tokens: int
    chunk_characters: int
    window: int | None

    def fault(self, *kinds: FaultKind) -> Fault | None:
        """The first fault of one of these kinds."""
        return next((fault for fault in self.faults if fault.kind in kinds), None)

    async def play(self, http: web.Request) -> web.StreamResponse:
        """Send the reply.

        Raises:
            _ReplyCut: a fault closed the connection.
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
    """Close the connection after what was written so far, and raise `_ReplyCut`."""
    if http.transport is not None:
        http.transport.close()
    raise _ReplyCut


class RequestOutcome(StrEnum):
    """Names how a request ended."""

    ANSWERED = "answered"
    """The answer, an error status included, was sent as the script has it."""
    REFUSED = "refused"
    """It was not a valid chat request (400), or longer than the context window."""
    CUT = "cut"
    """A fault closed the connection."""
    CLIENT_LEFT = "client_left"
    """The client closed the connection, or the server stopped, before the answer was out."""
    CRASHED = "crashed"
    """The policy raised; answered with 500."""


@dataclass
class RecordedRequest:
    """One request. The fields after `received` are filled in while it is answered."""

    body: dict[str, Any]
    """The parsed JSON, whole; empty when it was not a JSON object."""
    headers: Mapping[str, str]
    """Lower-case names."""
    received: float = field(default_factory=time.time)
    """Unix seconds."""
    reply: Reply | None = None
    """What the policy answered."""
    outcome: RequestOutcome | None = None
    """None while it is in flight."""
    finished: float | None = None
    """Unix seconds; None while it is in flight."""


logger = logging.getLogger("verifiers.v1.opencode_env.scripted_model")


class ScriptedModel:
    """A model endpoint that plays a policy.

    Args:
        policy: maps a request to a reply.
        host: the address where it listens.
        port: and the port; 0 takes a free one.
        delay: seconds of silence before every answer.
        context_window: tokens (four characters of request body each); a longer request gets vLLM's 400.
        chunk_characters: the most characters in one stream chunk.
        record: keep every request in `requests`; switch it off for a server that runs for long.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        delay: float = 0.0,
        context_window: int | None = None,
        chunk_characters: int = 64,
        record: bool = True,
    ) -> None:
        if chunk_characters < 1:
            raise ValueError(f"chunk_characters must be at least 1, not {chunk_characters}")
        self.policy = policy
        self.requests: list[RecordedRequest] = []
        self.active = 0
        """Chat requests in flight now."""
        self.peak_active = 0
        """The most chat requests that were in flight at once."""
        self._host = host
        self._port = port
        self._delay = delay
        self._window = context_window
        self._chunk_characters = chunk_characters
        self._record = record
        self._attempts: Counter[str] = Counter()
        """Of each call; the only state between requests."""
        self._arrived = asyncio.Condition()
        self._numbers = itertools.count(1)
        self._started_at = int(time.time())
        self._runner: web.AppRunner | None = None

    @property
    def port(self) -> int:
        """The port it listens on.

        Raises:
            RuntimeError: it is not running.
        """
        if self._runner is None or not self._runner.addresses:
            raise RuntimeError("ScriptedModel is not running: use `async with ScriptedModel(...) as model`")
        return int(self._runner.addresses[0][1])

    @property
    def base_url(self) -> str:
        """The URL to give to a client, with `/v1`.

        Raises:
            RuntimeError: it is not running.
        """
        return f"http://{self._host}:{self.port}/v1"

    async def start(self) -> None:
        """Listen.

        Raises:
            OSError: the address is taken.
            RuntimeError: it runs already.
        """
        if self._runner is not None:
            raise RuntimeError(f"ScriptedModel runs already at {self.base_url}")
        app = web.Application(client_max_size=1 << 30)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_get("/v1/models", self._models)
        app.router.add_get("/health", self._health)
        # Handlers are cancelled when their client leaves, so that a hang lasts exactly as long as the client.
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, self._host, self._port, backlog=1024).start()
        except BaseException:
            await runner.cleanup()
            raise
        self._runner = runner

    async def stop(self) -> None:
        """Stop listening and drop the requests in flight; harmless when it is not running."""
        runner, self._runner = self._runner, None
        if runner is not None:
            await runner.cleanup()

    async def wait_for_requests(self, count: int) -> None:
        """Return when `requests` holds so many; has no time limit of its own."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def _health(self, http: web.Request) -> web.Response:
        return web.json_response({"status": "ok", "server": LABEL})

    async def _models(self, http: web.Request) -> web.Response:
        card = {"id": MODEL_ID, "object": "model", "created": self._started_at, "owned_by": LABEL}
        if self._window is not None:
            card["max_model_len"] = self._window
        return web.json_response({"object": "list", "data": [card]})

    async def _chat(self, http: web.Request) -> web.StreamResponse:
        self.active += 1
        self.peak_active = max(self.peak_active, self.active)
        record = RecordedRequest(body={}, headers={name.lower(): value for name, value in http.headers.items()})
        try:
            response = await self._answer(http, record)
            record.outcome = record.outcome or RequestOutcome.ANSWERED
            return response
        except _ReplyCut:
            record.outcome = RequestOutcome.CUT
            return web.Response()  # goes nowhere: the connection is closed
        except (asyncio.CancelledError, ConnectionError):
            record.outcome = RequestOutcome.CLIENT_LEFT
            raise
        finally:
            record.finished = time.time()
            self.active -= 1

    async def _answer(self, http: web.Request, record: RecordedRequest) -> web.StreamResponse:
        try:
            raw = await http.text()
            body: Any = json.loads(raw)
            record.body = body if isinstance(body, dict) else {}
            request = ChatRequest(ChatBody.model_validate(body), record.headers, len(raw))
        except ValueError as error:
            record.outcome = RequestOutcome.REFUSED
            message = f"not a chat-completions request: {error}"
            return web.json_response(wire.error_body(message, "BadRequestError", 400), status=400)
        finally:
            await self._keep(record)
        prompt_tokens = tokens_of(request.characters)
        if self._window is not None and prompt_tokens > self._window:
            record.outcome = RequestOutcome.REFUSED
            return overflow_response(self._window, prompt_tokens)
        try:
            reply = record.reply = self.policy(request)
        except Exception as error:  # a policy is the user's code; its crash is an answer, not our end
            logger.exception("the policy of the scripted model raised")
            record.outcome = RequestOutcome.CRASHED
            message = f"scripted model: its policy raised {type(error).__name__}: {error}"
            return web.json_response(wire.error_body(message, "policy_crashed", 500), status=500)
        if self._delay:
            await asyncio.sleep(self._delay)
        return await self._performance(request, reply, prompt_tokens).play(http)

    async def _keep(self, record: RecordedRequest) -> None:
        if self._record:
            async with self._arrived:
                self.requests.append(record)
                self._arrived.notify_all()

    def _faults_of(self, request: ChatRequest, reply: Reply) -> tuple[Fault, ...]:
        """The faults of the reply that spoil this attempt; attempts count only where a fault depends on them."""
        if all(fault.attempts is None for fault in reply.faults):
            return reply.faults
        attempt = self._attempts[request.call_key]
        self._attempts[request.call_key] += 1
        return tuple(fault for fault in reply.faults if fault.attempts is None or attempt < fault.attempts)

    def _performance(self, request: ChatRequest, reply: Reply, prompt_tokens: int) -> PlannedReply:
        faults = self._faults_of(request, reply)
        kinds = {fault.kind for fault in faults}
        counted = Usage(prompt_tokens=prompt_tokens, completion_tokens=tokens_of(reply.characters))
        envelope = wire.ReplyFields(
            id=f"chatcmpl-scripted-{next(self._numbers)}",
            created=int(time.time()),
            conversation=request.conversation,
            turn=request.turn,
            usage=None if FaultKind.NO_USAGE in kinds else (reply.usage or counted),
            finish=FaultKind.NO_FINISH not in kinds,
            tool_call_ids=FaultKind.NO_TOOL_CALL_ID not in kinds,
        )
        return PlannedReply(request, reply, faults, envelope, prompt_tokens, self._chunk_characters, self._window)
