"""The model endpoint of a call: one client that takes a call through its steps there, and the clients of a server.

Invariant: no client is closed under a rollout, and of those that none uses only the last few are kept, so that a server
whose callers bring endpoints and keys of their own does not grow with them.
"""

import asyncio
import json
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
from openai import AsyncOpenAI
from rollout_sandbox.surrogates import may_hold_surrogate, whole_json
from verifiers.v1 import SamplingConfig
from verifiers.v1.clients import BaseClientConfig, Client, TrainClientConfig
from verifiers.v1.clients.client import RelayReply
from verifiers.v1.dialects import Dialect
from verifiers.v1.errors import ProviderError, RolloutError
from verifiers.v1.graph import PendingTurn
from verifiers.v1.types import Response

from opencode_env.cli_agent.interception import kept_logprobs, path
from opencode_env.cli_agent.interception.call import Call
from opencode_env.cli_agent.interception.endpoint_http import is_framed, look_for_wait
from opencode_env.cli_agent.interception.masking import Masking, keys_of
from opencode_env.cli_agent.interception.served_dialect import call_of
from opencode_env.cli_agent.interception.training_client import model_client
from opencode_env.cli_agent.interception.window import AnswerLimits

MOST_IDLE = 16
"""Unused clients that keep their connections."""


class EndpointClient(Client):
    """Asks one endpoint, whose keys may be masked in its answers, by the steps of a call."""

    def __init__(self, config: BaseClientConfig, mask_keys: bool) -> None:
        self.trains = isinstance(config, TrainClientConfig)
        keys = keys_of(config) if mask_keys else frozenset[str]()
        self.masking = Masking(keys) if keys else None
        self._inner = model_client(config)
        self._limits = AnswerLimits(config)
        http = getattr(self._inner, "client", None)
        if isinstance(http, httpx.AsyncClient):
            http.event_hooks = {"response": [look_for_wait, _make_whole]}
        elif isinstance(http, AsyncOpenAI):
            http._client.event_hooks = {"response": [_name_tokens]}  # there is no public way

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
            for step in path.ANSWER:
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
            content_type, came = "text/event-stream", call.known_answer
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
                for step in path.STREAM:
                    events = step(call, events)
            except RolloutError:
                raise
            except Exception as error:  # what verifiers takes for the provider's failure too
                raise ProviderError(str(error)) from error
        turns = call.gateway.turns
        if turns is not None and call.answer_place is not None and call.known_answer is None:
            await turns.answered(call.answer_place, came)
        return RelayReply(content_type, _again(events), _closed)

    async def _whole(
        self, call: Call, body: dict[str, Any], session_id: str | None, headers: Mapping[str, str] | None
    ) -> list[bytes]:
        """The events of an answer that was asked for at once. Changes `framed` and `logprobs`."""
        whole = {key: value for key, value in body.items() if key not in ("stream", "stream_options")}
        response = await self._inner.get_response(call.reading, whole, SamplingConfig(), session_id, None, headers)
        kept_logprobs.take_from_answer(call, response)  # they have no place in the events
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
        """A call is at the endpoint, for as long as it may be, and until its turn was kept; yields what says that its
        answer goes on. Of its failure is told what the steps say."""
        call.trains, call.masking = self.trains, self.masking
        try:
            for step in path.ASK:
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
            for tell in path.FAILURE:
                said = tell(call, said)
            if said is error:
                raise
            raise said from error
        finally:
            if call.keeping is not None:
                await asyncio.wait({call.keeping})


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
        response._content = json.dumps(whole).encode()  # which httpx returns from here on; there is no public way


_TOKEN_ID = re.compile(rb'"token_id"\s*:\s*(\d+)')


async def _name_tokens(response: httpx.Response) -> None:
    """Give the tokens of an engine's log-probabilities the form that renderers reads: vLLM 0.32 sends their ids."""
    if b'"token_id"' in await response.aread():
        response._content = _TOKEN_ID.sub(rb'"token":"token_id:\1"', response.content)


class KeptClients:
    """The clients of one server."""

    def __init__(self, mask_keys: bool) -> None:
        self._mask_keys = mask_keys
        self._made: dict[tuple[str, str], EndpointClient] = {}
        self._uses: Counter[tuple[str, str]] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    def lend(self, seat: str, config: BaseClientConfig) -> EndpointClient:
        """The client of a seat and an endpoint, until it is given back; no seat can use up another's connections."""
        key = (seat, config.model_dump_json())
        self._uses[key] += 1
        if key not in self._made:
            self._made[key] = EndpointClient(config, self._mask_keys)
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
