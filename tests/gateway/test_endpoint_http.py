"""Calls share an endpoint's connections, and send what verifiers' own client sends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import product
from typing import Any

import httpcore
import httpx
import pytest
from aiohttp import web
from opencode_env.cli_agent.interception import endpoint
from opencode_env.cli_agent.interception.endpoint import Connections, EndpointHttp
from verifiers.v1.clients import EvalClient, EvalClientConfig
from verifiers.v1.dialects import DIALECTS

from tests.support.served_app import served
from tests.support.waiting import until


class CountingServer:
    """Answers when it may, and counts."""

    def __init__(self) -> None:
        self.may_answer = asyncio.Event()
        self.active = self.most = 0
        self.url = ""
        self._runner = web.AppRunner(web.Application())
        self._runner.app.router.add_get("/", self._answer)
        self._runner.app.router.add_get("/now", self._answer_now)

    async def _answer(self, request: web.Request) -> web.Response:
        self.active += 1
        self.most = max(self.most, self.active)
        await self.may_answer.wait()
        self.active -= 1
        return web.Response(text="done")

    async def _answer_now(self, request: web.Request) -> web.Response:
        return web.Response(text="now")

    @property
    def connections(self) -> int:
        """How many are open."""
        assert self._runner.server is not None
        return len(self._runner.server.connections)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen while the body runs."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/"
        yield
        await self._runner.cleanup()


@asynccontextmanager
async def asked() -> AsyncIterator[tuple[CountingServer, httpx.AsyncClient]]:
    """A server, and a client of it."""
    server = CountingServer()
    async with server.serving(), httpx.AsyncClient(transport=Connections(), timeout=30) as client:
        yield server, client


async def at_once(server: CountingServer, client: httpx.AsyncClient, requests: int, expected: int) -> None:
    """Send requests at once, of which so many get to the server together."""
    server.may_answer.clear()
    sent = [asyncio.create_task(client.get(server.url)) for _ in range(requests)]
    await until(lambda: server.active >= expected)
    server.may_answer.set()
    assert [(await one).text for one in sent] == ["done"] * requests


async def test_calls_use_as_many_connections_as_there_are_at_once_and_use_them_again() -> None:
    async with asked() as (server, client):
        for _ in range(5):
            await at_once(server, client, 1, 1)
        assert server.connections == 1
        for _ in range(3):
            await at_once(server, client, 25, 25)
        assert server.connections == 25


def allow(monkeypatch: pytest.MonkeyPatch, connections: int, kept: int = 10) -> None:
    """Let there be so many."""
    monkeypatch.setattr(endpoint, "CONNECTIONS", connections)
    monkeypatch.setattr(endpoint, "KEPT_CONNECTIONS", kept)


async def test_calls_above_the_limit_wait_and_connections_above_the_kept_ones_are_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    allow(monkeypatch, 6, kept=2)
    async with asked() as (server, client):
        await at_once(server, client, 20, 6)
        assert server.most == 6
        await until(lambda: server.connections <= 2)
        await at_once(server, client, 20, 6)


async def test_a_call_waits_for_the_first_connection_that_gets_free(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 2)
    async with asked() as (server, client):
        long = asyncio.create_task(client.get(server.url))
        await until(lambda: server.active == 1)
        answers = await asyncio.gather(*(client.get(f"{server.url}now") for _ in range(5)))
        assert [one.text for one in answers] == ["now"] * 5
        server.may_answer.set()
        await long


@pytest.mark.parametrize("moments", range(0, 40, 4))
async def test_a_waiting_call_that_is_cancelled_keeps_no_connection_from_the_next(
    monkeypatch: pytest.MonkeyPatch, moments: int
) -> None:
    allow(monkeypatch, 1)
    async with asked() as (server, client):
        first, cancelled, last = (asyncio.create_task(client.get(server.url)) for _ in range(3))
        await until(lambda: server.active == 1)
        server.may_answer.set()
        for _ in range(moments):
            await asyncio.sleep(0)
        cancelled.cancel()
        assert [one.text for one in await asyncio.gather(first, last)] == ["done"] * 2


async def test_a_free_connection_stays_where_few_others_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 3, kept=1)
    async with asked() as (server, client):
        held = [asyncio.create_task(client.get(server.url)) for _ in range(2)]
        await until(lambda: server.active == 2)
        used = []
        for _ in range(2):
            assert (await client.get(f"{server.url}now")).text == "now"
            assert isinstance(client._transport, Connections)
            used += client._transport._free
        first, second = used
        assert first is second
        server.may_answer.set()
        await asyncio.gather(*held)


async def test_a_client_closes_the_connections_in_use() -> None:
    async with asked() as (server, client):
        under_way = asyncio.create_task(client.get(server.url))
        await until(lambda: server.active == 1)
        await client.aclose()
        server.may_answer.set()
        assert isinstance((await asyncio.gather(under_way, return_exceptions=True))[0], httpx.HTTPError)


class _Unclosable(httpx.AsyncByteStream):
    """A body whose end is cancelled."""

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield b"done"

    async def aclose(self) -> None:
        raise asyncio.CancelledError


async def test_a_call_that_is_cancelled_as_its_answer_ends_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(*_: Any) -> httpx.Response:
        return httpx.Response(200, stream=_Unclosable())

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", answer)
    connections = Connections()
    response = await connections.handle_async_request(httpx.Request("GET", "http://127.0.0.1:9/"))
    with pytest.raises(asyncio.CancelledError):
        await response.aclose()
    assert (len(connections._open), len(connections._free)) == (0, 0)
    assert connections._places._value == endpoint.CONNECTIONS


async def test_a_call_that_fails_or_is_given_up_leaves_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    allow(monkeypatch, 1)
    async with asked() as (server, client):
        for _ in range(3):
            with pytest.raises(httpx.ConnectError):
                await client.get("http://127.0.0.1:9/")
            given_up = asyncio.create_task(client.get(server.url))
            await until(lambda: server.active)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            server.may_answer.set()
            await until(lambda: not server.active)
            await at_once(server, client, 2, 1)
            server.may_answer.clear()


async def test_calls_that_are_cancelled_as_they_connect_take_no_place_from_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """httpcore counts their connections for ever."""
    made = httpcore.AsyncHTTP11Connection.__init__

    def cancelled(*args: Any, **options: Any) -> None:
        made(*args, **options)
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    allow(monkeypatch, 2)
    async with asked() as (server, client):
        server.may_answer.set()
        with monkeypatch.context() as patch:
            patch.setattr(httpcore.AsyncHTTP11Connection, "__init__", cancelled)
            for _ in range(3):
                with pytest.raises(asyncio.CancelledError):
                    await asyncio.create_task(client.get(server.url))
        answers = asyncio.gather(*(client.get(server.url) for _ in range(4)))
        assert {answer.text for answer in await asyncio.wait_for(answers, 60)} == {"done"}


def test_headers_are_verifiers_own_and_each_rollouts() -> None:
    config = EvalClientConfig(base_url="http://127.0.0.1:9/v1", api_key_var="NO_SUCH_KEY", headers={"X-Own": "1"})
    ours, theirs = EndpointHttp(config), EvalClient(config)
    given = {"User-Agent": "agent", "Authorization": "Bearer secret", "Content-Length": "7", "Connection": "close"}
    for incoming in (given, {**given, "Content-Length": "8"}, {**given, "User-Agent": "other"}, None):
        for session, dialect in product(("one", "two", None), DIALECTS):
            expected = theirs._headers(dialect, incoming, session)
            made = ours._headers(dialect, incoming, session)
            assert made.raw == expected.raw
            made["content-type"] = "changed"
            assert ours._headers(dialect, incoming, session).raw == expected.raw


async def test_a_call_sends_what_verifiers_own_client_sends() -> None:
    heard: list[tuple[object, ...]] = []

    async def hear(request: web.Request) -> web.Response:
        heard.append((request.raw_path, sorted(request.headers.items()), await request.read()))
        return web.json_response({})

    app = web.Application()
    app.router.add_post("/{path:.*}", hear)
    async with served(app) as url:
        config = EvalClientConfig(base_url=f"{url}/v1", api_key_var="NO_SUCH_KEY")
        for client in (EvalClient(config), EndpointHttp(config), EndpointHttp(config)):
            for route in ("/chat/completions", "/v1/count?of=tokens"):
                await client.relay_aux(DIALECTS[0], route, {"model": "m"}, headers={"User-Agent": "agent"})
            await client.close()
    assert heard[2:4] == heard[4:6] == heard[:2]
