"""The model endpoint of a call: one client that takes a call through its steps there, the clients of a server, and
verifiers' HTTP client with less work for each call (`EndpointHttp`; kept until that client does it itself)."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from ssl import SSLContext
from typing import Any

import httpx
from openai import AsyncOpenAI
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
from verifiers.v1.dialects import Dialect
from verifiers.v1.errors import ProviderError, RolloutError, model_error
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception import path
from opencode_env.cli_agent.interception.answer_steps import WAITING, take_logprobs
from opencode_env.cli_agent.interception.gateway import Call
from opencode_env.cli_agent.interception.key_masking import Masking, keys_of
from opencode_env.cli_agent.interception.served_dialect import call_of
from opencode_env.cli_agent.interception.training_client import with_lenient_renderer
from opencode_env.cli_agent.interception.window import AnswerLimits
from opencode_env.compat import replace_content, response_of, send_through
from opencode_env.errors import NoJsonError


class EndpointClient(Client):
    """Asks one endpoint, whose keys are masked in its answers, by the steps of a call."""

    def __init__(self, config: BaseClientConfig) -> None:
        self.trains = isinstance(config, TrainClientConfig)
        keys = keys_of(config)
        self.masking = Masking(keys) if keys else None
        self._inner = model_client(config)
        self._limits = AnswerLimits(config)
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
            response = await self._limits.ask(call, body, ask)
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
                came = await self._limits.ask(call, body, lambda: self._whole(call, body, session_id, headers))
            elif came is None:
                asked = partial(self._inner.relay, dialect, body, session_id=session_id, headers=headers)
                reply = await self._limits.ask(call, body, asked)
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
