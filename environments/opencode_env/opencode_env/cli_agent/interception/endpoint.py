"""How a call goes through verifiers' server to its model endpoint: as a dialect, by which the server and its clients
know the call (`served`); one client that takes a call through its steps there, the clients of a server, and verifiers'
HTTP client with less work for each call (`EndpointHttp`; kept until that client does it itself).

verifiers' server hands the typed messages of `parse_request` to its graph, and with them to the renderer of a training
client; they hold what was sampled, character for character. The request's own JSON goes to a chat endpoint.

The dialects exist because verifiers' server parses whatever stands before it. What would end each method stands in its
comment; a `handle_request(request, dialect, call)` that took a body that was read would end them all.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from ssl import SSLContext
from typing import Any

import httpx
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion
from rollout_sandbox.surrogates import may_hold_surrogate, whole_json
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import (
    BaseClientConfig,
    Client,
    EvalClient,
    EvalClientConfig,
    TrainClientConfig,
    resolve_client,
)
from verifiers.v1.clients.base import build_async_httpx
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import AnthropicDialect, ChatDialect, Dialect, ResponsesDialect, StreamParser
from verifiers.v1.dialects.base import RawRequest
from verifiers.v1.errors import ProviderError, RolloutError, model_error
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Message, Request, Response, Tool

from opencode_env.cli_agent.interception import path
from opencode_env.cli_agent.interception.answer_steps import WAITING, take_logprobs
from opencode_env.cli_agent.interception.chat_answers import stream_parser, whole_answer
from opencode_env.cli_agent.interception.conversations import follow
from opencode_env.cli_agent.interception.gateway import Call, Masking, keys_of
from opencode_env.cli_agent.interception.history import History, RestoredHistory, WireMessage, call_on_wire
from opencode_env.cli_agent.interception.training_client import with_lenient_renderer
from opencode_env.cli_agent.interception.window import AnswerLimits
from opencode_env.compat import replace_content, response_of, send_through
from opencode_env.errors import NoJsonError


class _Served(Dialect[Any]):
    """Stands before a class of dialects: one instance serves one call."""

    call: Call

    # Ends with a parameter of `handle_request` for a parsed body: it parses JSON, here that of `Call.server_body`.
    def apply_overrides(self, body: RawRequest, model: str, sampling: SamplingConfig) -> RawRequest:
        """The call's body with the rollout's model and sampling."""
        imposed: RawRequest = super().apply_overrides(self.call.body, model, sampling)  # type: ignore[safe-super]
        return imposed

    # Ends when verifiers answers 400 to what a dialect cannot read: of its 500 an agent thinks that it may pass.
    def parse_request(self, body: RawRequest) -> Request:
        with _reading():
            parsed: Request = super().parse_request(body)  # type: ignore[safe-super]
        return parsed

    # Ends when `RelayReply` may bring the answer that its events say.
    def stream_parser(self) -> StreamParser:
        """A parser of the call's answer, which is known when it was read before."""
        if self.call.answer is not None:
            return _AnswerRead(self.call.answer)
        own: StreamParser = super().stream_parser()  # type: ignore[safe-super]
        return own


class _AnswerRead(StreamParser):
    """Gives the answer that was read already."""

    def __init__(self, answer: Response) -> None:
        self._answer = answer

    def feed(self, raw: bytes) -> None: ...

    def finish(self) -> Response:
        return self._answer


class _ServedResponses(_Served, ResponsesDialect):
    pass


class _ServedMessages(_Served, AnthropicDialect):
    pass


class _ServedChat(_Served, ChatDialect):
    wire: list[WireMessage | None]
    """The JSON of each typed message; None where a chat endpoint gets none."""

    # Ends with a hook of the server between parsing and matching, for restored histories.
    def parse_request(self, body: RawRequest) -> Request:
        """The request, typed, its history restored. Changes `body["messages"]` to what goes upstream."""
        call, history = self.call, self.call.history
        if history is None:
            read = super().parse_request({**body, "tools": None})
            return Request.model_construct(messages=read.messages, tools=self._tools(body))
        with _reading():
            messages = body.get("messages") or []
            tools = self._tools(body)
            restored = history.restore(messages, tools or [], call.section_name)
            call.gateway.note_partial(restored.partial)
            sampled, sent = _results(restored, messages[restored.taken :])
            tail = self._tail(restored, sampled, history)
        self.wire = [*restored.wire, *sent]
        body["messages"] = [message for message in self.wire if message is not None]
        call.last_message = body["messages"][-1]
        follow(restored.path, alone=call.gateway.summaries.at is not None)
        typed = [*(history.message(node) for node in restored.path), *tail]
        return Request.model_construct(messages=typed, tools=tools)

    def _tools(self, body: RawRequest) -> list[Tool] | None:
        """The tools of a request; an agent offers the same ones each time."""
        offered, seat = self.call.gateway.offered, self.call.is_main
        declared: RawRequest = {key: value for key, value in body.items() if key in ("tools", "n")}
        if seat not in offered or offered[seat][0] != declared:
            offered[seat] = declared, super().parse_request(declared).tools
        return offered[seat][1]

    def _tail(self, restored: RestoredHistory, messages: list[WireMessage], history: History) -> list[Message]:
        """Return what is new in the request, typed; a result bears the name that was sampled with its call."""
        if not messages:
            return []
        calls = [call_on_wire(call, call.id) for call in history.last_calls(restored)]
        read = super().parse_request({"messages": [{"role": "assistant", "tool_calls": calls}, *messages]})
        return list(read.messages[1:])

    def rewrite_request(self, body: RawRequest, before: Request, after: Request) -> None:
        """Patch rewritten messages into the JSON; what a chat endpoint does not get cannot be rewritten."""
        if self.call.history is not None:
            sent = [position for position, wire in enumerate(self.wire) if wire is not None]
            kept = [[one.messages[position] for position in sent] for one in (before, after)]
            before, after = (Request.model_construct(messages=messages) for messages in kept)
        super().rewrite_request(body, before, after)

    # Ends when verifiers reads the forms that endpoints give a chat completion (see `chat_answers.py`).
    def validate_response(self, raw: dict[str, Any]) -> ChatCompletion:
        """Validate an answer, made one in OpenAI's form."""
        validated: ChatCompletion = super().validate_response(whole_answer(self.call, raw))
        return validated

    def stream_parser(self) -> StreamParser:
        return stream_parser(self.call) if self.call.answer is None else super().stream_parser()


_CLASSES: dict[type[Dialect[Any]], type[_Served]] = {
    ChatDialect: _ServedChat,
    ResponsesDialect: _ServedResponses,
    AnthropicDialect: _ServedMessages,
}


def served(call: Call) -> Dialect[Any]:
    """The dialect that serves a call; of the type of its own, by which verifiers' clients ask. Changes `reading`."""
    dialect = _CLASSES[type(call.dialect)]()
    dialect.call = call
    call.reading = dialect
    return dialect


def call_of(dialect: Dialect[Any]) -> Call:
    assert isinstance(dialect, _Served)
    return dialect.call


def _results(restored: RestoredHistory, messages: list[WireMessage]) -> tuple[list[WireMessage], list[WireMessage]]:
    """Return what is new in the request, with the ids of the calls as they were sampled, and as an endpoint gets
    them."""
    sampled, sent = list(messages), list(messages)
    for position, message in enumerate(messages):
        if message.get("role") == "assistant":
            sent[position] = restored.answer_as_it_came(message)
        elif message.get("role") == "tool" and (ids := restored.result_of(message)) is not None:
            sampled[position] = {**message, "tool_call_id": ids.sampled}
            sent[position] = restored.result_on_wire(message, ids)
    return sampled, sent


@contextmanager
def _reading() -> Iterator[None]:
    """Read a request: what cannot be read is the caller's mistake."""
    try:
        yield
    except (AttributeError, KeyError, TypeError, AssertionError) as error:
        raise ValueError(f"the request cannot be read: {type(error).__name__}: {error}") from None


class EndpointClient(Client):
    """Asks one endpoint, whose keys are masked in its answers, by the steps of a call."""

    def __init__(self, config: BaseClientConfig) -> None:
        self.trains = isinstance(config, TrainClientConfig)
        keys = keys_of(config)
        self.masking = Masking(keys) if keys else None
        self._inner = model_client(config)
        self.limits = AnswerLimits(config)
        http = getattr(self._inner, "client", None)
        if isinstance(http, httpx.AsyncClient):
            http.event_hooks = {"response": [_keep_refusal, _make_whole]}
        elif isinstance(http, AsyncOpenAI):
            naming = build_async_httpx(config)
            naming.event_hooks = {"response": [_name_tokens]}
            inner: Any = self._inner
            inner.client = http.with_options(http_client=naming)

    async def get_response(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        sampling: SamplingConfig,
        session_id: str | None = None,
        turn: PendingTurn | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        call = call_of(dialect)

        async def ask() -> Response:
            fitting = {} if call.answer_limit is None or not self.trains else {"max_tokens": call.answer_limit}
            settings = sampling.model_copy(update=fitting)
            return await self._inner.get_response(dialect, body, settings, session_id, turn, headers)

        async with self._asking(call, streamed=False):
            response = await self.limits.ask(call, body, ask)
            for step in call.gateway.steps(path.ANSWER):
                response = step(call, response)
        return response

    async def relay(
        self,
        dialect: Dialect[Any],
        body: dict[str, Any],
        session_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> RelayReply:
        """One stream, read whole: verifiers serves no part of it before its end anyway."""
        call = call_of(dialect)
        streamed = not call.is_chat or call.gateway.config.ask_streamed
        async with self._asking(call, streamed) as goes_on:
            content_type, came = "text/event-stream", call.events
            call.framed = came is not None
            if came is None and not streamed:
                came = await self.limits.ask(call, body, lambda: self._whole(call, body, session_id, headers))
            elif came is None:
                asked = partial(self._inner.relay, dialect, body, session_id=session_id, headers=headers)
                reply = await self.limits.ask(call, body, asked)
                content_type = call.content_type = reply.content_type
                try:
                    came = await _read(call, reply, goes_on)
                finally:
                    await reply.close()
                call.framed = call.broken is None and is_framed(reply)
            events = list(came)
            try:
                for step in call.gateway.steps(path.STREAM):
                    events = step(call, events)
            except RolloutError:
                raise
            except Exception as error:  # what verifiers takes for the provider's failure too
                raise ProviderError(str(error)) from error
            call.events = came
        return RelayReply(content_type, _again(events), _closed)

    async def _whole(
        self, call: Call, body: dict[str, Any], session_id: str | None, headers: Mapping[str, str] | None
    ) -> list[bytes]:
        """The events of an answer that was asked for at once. Changes `framed` and `logprobs`."""
        whole = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        response = await self._inner.get_response(call.reading, whole, SamplingConfig(), session_id, None, headers)
        take_logprobs(call, response)  # they have no place in the events
        call.framed = True
        return call.dialect.stream_events(response.raw or {})

    async def relay_aux(
        self, dialect: Dialect[Any], route: str, body: dict[str, Any], headers: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """A side request, which is not a call of the model."""
        try:
            answer: dict[str, Any] = await self._inner.relay_aux(dialect, route, body, headers=headers)
        except Exception as error:
            if self.masking is not None:
                self.masking.error(error)
            raise
        return answer if self.masking is None else dict(self.masking.json(answer))

    async def close(self) -> None:
        await self._inner.close()

    @asynccontextmanager
    async def _asking(self, call: Call, streamed: bool) -> AsyncIterator[Callable[[], None]]:
        """A call is at the endpoint, for as long as it may be, and until what goes before its answer is
        over; yields what says that its answer goes on. Of its failure is told what the steps say."""
        call.trains, call.masking = self.trains, self.masking
        try:
            for step in call.gateway.steps(path.ASK):
                step(call)
            if call.sub is not None:
                async with _in_time(call.sub.settings.timeout):
                    yield lambda: None
            elif call.caller.own:
                with call.gateway.program.at_the_endpoint(streamed) as goes_on:
                    yield goes_on
            else:
                yield lambda: None
        except Exception as error:
            said = error
            for tell in call.gateway.steps(path.FAILURE):
                said = tell(call, said)
            if said is error:
                raise
            raise said from error
        finally:
            try:
                for awaited in call.before_answer:
                    await awaited()
            finally:  # they may hold the call, which only the collector would free then
                call.before_answer.clear()
                call.events = None


@asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    """End a sub call that is longer at its endpoint, streaming included."""
    try:
        async with asyncio.timeout(seconds) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        # A 504 would make an agent send the call several more times.
        raise ProviderError("the sub-LLM call took longer than sub_timeout allows", status_code=400) from error


async def _read(call: Call, reply: RelayReply, goes_on: Callable[[], None]) -> list[bytes]:
    """The complete events of a stream; what came before a failure counts. Changes `broken`."""
    events: list[bytes] = []
    try:
        async for event in reply.chunks:
            if not event.startswith(b":"):  # a comment keeps the connection alive, and is not an answer
                goes_on()
            events.append(event)
    except Exception as error:  # noqa: BLE001 - raised by the step that looks for failures
        call.broken = error
    return events


async def _again(events: list[bytes]) -> AsyncIterator[bytes]:
    for event in events:
        yield event


async def _closed() -> None:
    """The reply was closed when it had been read."""


async def _make_whole(response: httpx.Response) -> None:
    """Join or replace the lone surrogates of a reply: verifiers' parser would make an error of what the model said."""
    if not response.headers.get("content-type", "").startswith("application/json"):
        return
    if may_hold_surrogate(await response.aread()):
        try:
            whole = whole_json(json.loads(response.content))
        except (ValueError, RecursionError):
            return  # the engine says what is wrong with it
        replace_content(response, json.dumps(whole).encode())


_TOKEN_ID = re.compile(rb'"token_id"\s*:\s*(\d+)')


async def _name_tokens(response: httpx.Response) -> None:
    """Give the tokens of an engine's log-probabilities the form that renderers reads: vLLM 0.32 sends their ids."""
    if b'"token_id"' in await response.aread():
        replace_content(response, _TOKEN_ID.sub(rb'"token":"token_id:\1"', response.content))


MOST_IDLE = 16
"""Unused clients that keep their connections."""


class KeptClients:
    """The clients of one server. None is closed under a rollout, and of those that none uses only the last few are
    kept, so that a server whose callers bring endpoints and keys of their own does not grow with them."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], EndpointClient] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    def lend(self, seat: str, config: BaseClientConfig) -> EndpointClient:
        """The client of a seat and an endpoint, until it is given back; no seat can use up another's connections."""
        key = (seat, config.model_dump_json())
        self._uses[key] += 1
        if key not in self._made:
            self._made[key] = EndpointClient(config)
        return self._made[key]

    def give_back(self, seat: str, config: BaseClientConfig) -> None:
        """Give back what was lent; the longest unused clients are closed."""
        key = (seat, config.model_dump_json())
        self._uses[key] -= 1
        if self._uses[key] > 0:
            return
        del self._uses[key]
        if key not in self._made:  # all are closed
            return
        self._made[key] = self._made.pop(key)
        idle = [known for known in self._made if known not in self._uses]
        for unused in idle[: max(0, len(idle) - MOST_IDLE)]:
            closing = asyncio.get_running_loop().create_task(self._made.pop(unused).close())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        left, self._made = list(self._made.values()), {}
        await asyncio.gather(*self._closing, *(client.close() for client in left), return_exceptions=True)


def model_client(config: BaseClientConfig) -> Client:
    """The client of a configuration; one that trains reads malformed calls."""
    if isinstance(config, EvalClientConfig):
        return EndpointHttp(config)
    return resolve_client(with_lenient_renderer(config) if isinstance(config, TrainClientConfig) else config)


class EndpointHttp(EvalClient):
    """verifiers' client of a chat endpoint, which makes headers and URLs once for each rollout, not for each call. What
    goes upstream is what verifiers' own client sends."""

    def __init__(self, config: BaseClientConfig) -> None:
        super().__init__(config)
        url = httpx.URL(config.base_url)
        if url.query:  # such as ?api-version=…: it belongs behind every path
            self.base_url, self.client.params = str(url.copy_with(query=None)), url.params
        send_through(self.client, Connections())
        self._url: Callable[[str], Any] = lru_cache(httpx.URL)
        self._made: dict[tuple[object, ...], httpx.Headers] = {}

    def _headers(
        self, dialect: Dialect[Any], incoming: Mapping[str, str] | None, session_id: str | None
    ) -> httpx.Headers:
        given = [pair for pair in (incoming or {}).items() if pair[0].lower() != "content-length"]  # never sent on
        key = (type(dialect), session_id, *given)
        if key not in self._made:
            if len(self._made) >= 1000:
                self._made.clear()
            self._made[key] = super()._headers(dialect, incoming, session_id)
        return self._made[key].copy()

    async def _request(self, url: Any, *args: Any, **options: Any) -> httpx.Response:
        try:
            response = await super()._request(self._url(url), *args, **options)
        except _Refused as refused:
            status = refused.response.status_code
            told = f"upstream {status}: {refused.response.text}"
            raise model_error(told, status_code=status) from refused
        if not options.get("stream") and response.content.lstrip()[:1] not in (b"{", b"["):
            raise NoJsonError(response)
        return response


class _Refused(Exception):
    """An endpoint does not take a call now; its response, read, may say when it does."""

    def __init__(self, response: httpx.Response) -> None:
        super().__init__()
        self.response = response


async def _keep_refusal(response: httpx.Response) -> None:
    """Keep a refusal whole that may say when to ask again: verifiers keeps its text only."""
    if response.status_code in WAITING:
        await response.aread()
        raise _Refused(response)


def is_framed(reply: RelayReply) -> bool:
    """Whether the end of a reply that was read without an error is that of its answer: a body that ends with its
    connection may have been cut."""
    response = response_of(reply)
    headers = {} if response is None else response.headers
    return "content-length" in headers or "chunked" in headers.get("transfer-encoding", "")


CONNECTIONS = 1000
"""At once, which is verifiers' limit; beyond it a call waits for the first connection that gets free."""

KEPT_CONNECTIONS = 100
"""Without a request, that stay open."""


class Connections(httpx.AsyncBaseTransport):
    """Sends each request through a connection of its own, one that is free if there is one.

    httpcore looks several times at every connection of a pool for each request, so that with hundreds of calls at once
    one pool takes more of the serving thread than all the rest of a call: here each connection is a pool of its own. It
    can also lose a connection whose request is cancelled as it begins: that counts for ever and serves nobody. So no
    request waits for a connection that another has, and the connection of one that was cancelled is closed.
    """

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(CONNECTIONS)
        self._open: set[httpx.AsyncHTTPTransport] = set()
        self._free: list[httpx.AsyncHTTPTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send one request; it has its connection until its response is closed."""
        await self._places.acquire()
        connection = self._free.pop() if self._free else self._another()
        try:
            response = await connection.handle_async_request(request)
        except BaseException as error:
            await self._release(connection, error)
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)
        response.stream = _Stream(response.stream, partial(self._release, connection))
        return response

    async def aclose(self) -> None:
        while self._open:
            await self._open.pop().aclose()

    def _another(self) -> httpx.AsyncHTTPTransport:
        limits = httpx.Limits(max_connections=1, max_keepalive_connections=1)
        connection = httpx.AsyncHTTPTransport(verify=_tls(), limits=limits)
        self._open.add(connection)
        return connection

    async def _release(self, connection: httpx.AsyncHTTPTransport, error: BaseException | None) -> None:
        try:
            if not isinstance(error, asyncio.CancelledError) and len(self._free) < KEPT_CONNECTIONS:
                self._free.append(connection)
            else:
                self._open.discard(connection)
                await connection.aclose()
        finally:
            self._places.release()


@dataclass(frozen=True)
class _Stream(httpx.AsyncByteStream):
    """A response's body, and what is done when it is closed, with the error of closing it."""

    body: httpx.AsyncByteStream
    release: Callable[[BaseException | None], Awaitable[None]]

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self.body.__aiter__()

    async def aclose(self) -> None:
        try:
            await self.body.aclose()
        except BaseException as error:
            await self.release(error)
            raise
        await self.release(None)


@cache
def _tls() -> SSLContext:
    """Return how certificates are checked, as httpx does; reading them takes a moment."""
    return httpx.create_ssl_context()
