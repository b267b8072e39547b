"""What a connection holds of its caller is bounded, and a caller that is gone ends the work for it."""

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
import uvicorn
from opencode_openenv import OpenCodeEnvClient
from opencode_openenv.connection_guard import GuardedApplication, Message, Receive, Send, refusal
from opencode_openenv.openenv_server import settings_of
from opencode_openenv.settings import ServerConfig
from opencode_openenv.tbench2.client import Tbench2Env

from tests.support.user_home import closed_port
from tests.support.waiting import until

SCOPE = {"type": "websocket", "path": "/ws", "headers": [(b"host", b"127.0.0.1:8000")]}


@pytest.mark.parametrize(
    ("host", "served"),
    [
        *((host, True) for host in ("127.0.0.1:8000", "localhost:8000", "LocalHost", "[::1]:8000", "10.0.0.7")),
        *((host, False) for host in ("rebound.example:8000", "localhost.example", "127.0.0.1.example:80", "", "a:b:c")),
        *((host, False) for host in ("[::1%25evil.example]:8000", "[::1%evil.example]", "fe80::1%evil.example")),
    ],
)
def test_without_a_token_the_server_answers_to_no_name_that_a_page_could_have(host: str, served: bool) -> None:
    scope = {"type": "http", "path": "/state", "headers": [(b"host", host.encode())]}
    assert (refusal(scope, None) == "") is served
    authorized = {**scope, "headers": [*scope["headers"], (b"authorization", b"Bearer a-long-token")]}
    assert refusal(authorized, "a-long-token") == ""


def test_no_page_of_a_browser_and_no_other_token_is_served() -> None:
    def why(token: str | None, *headers: tuple[bytes, bytes]) -> str:
        return refusal({"type": "http", "path": "/state", "headers": [(b"host", b"127.0.0.1"), *headers]}, token)

    right = (b"authorization", b"Bearer a-long-token")
    page = (b"origin", b"http://127.0.0.1")
    assert why(None) == why("a-long-token", right) == ""
    assert "browser" in why(None, page)
    assert "browser" in why("a-long-token", right, page)
    for wrong in (b"Bearer another-one", b"Bearer ", b"Basic YTpi", b"a-long-token", b"Basic !"):
        assert "asks for a token" in why("a-long-token", (b"authorization", wrong))
    assert "asks for a token" in why("a-long-token")


def sent(*sizes: int) -> tuple[Receive, list[int]]:
    """A caller that sends texts of these sizes and then is silent; the list tells what was taken of it."""
    taken: list[int] = []

    async def receive() -> Message:
        if len(taken) == len(sizes):
            await asyncio.Event().wait()
        taken.append(sizes[len(taken)])
        return {"type": "websocket.receive", "text": "x" * taken[-1]}

    return receive, taken


def test_a_trainer_that_answers_no_ping_while_it_steps_keeps_its_session() -> None:
    async def application(scope: Message, receive: Receive, send: Send) -> None:
        """Serves nobody."""

    assert (settings_of(application, ServerConfig()).ws_ping_timeout or 0) >= 1800
    assert OpenCodeEnvClient("http://127.0.0.1:9")._websocket_ping_timeout_s >= 1800


@pytest.mark.parametrize("client", [OpenCodeEnvClient, Tbench2Env])
async def test_no_error_of_a_connection_shows_the_token(client: type[OpenCodeEnvClient] | type[Tbench2Env]) -> None:
    env = client(f"http://127.0.0.1:{closed_port()}", token="a-secret-token")
    with pytest.raises(ConnectionError) as refusal:
        await env.connect()
    assert "127.0.0.1" in str(refusal.value)
    assert "a-secret-token" not in "".join(traceback.format_exception(refusal.value))


async def no_send(message: Message) -> None:
    """Nobody listens."""


@pytest.mark.parametrize("sizes", [(400, 400, 400), (1,) * 40, (5000,)])
async def test_a_caller_that_sends_more_than_is_taken_is_cut_off(sizes: tuple[int, ...]) -> None:
    ended = asyncio.Event()

    async def busy(scope: Message, receive: Receive, send: Send) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    receive, taken = sent(*sizes)
    await asyncio.wait_for(GuardedApplication(busy, None, 1000)(SCOPE, receive, no_send), 10)
    assert ended.is_set()
    assert sum(taken[:-1]) <= 1000
    assert len(taken) <= 33


@asynccontextmanager
async def listening(application: GuardedApplication) -> AsyncIterator[int]:
    """The port of a server of this process."""
    server = uvicorn.Server(settings_of(application, ServerConfig(port=0)))
    serving = asyncio.create_task(server.serve())
    try:
        await until(lambda: server.started)
        yield server.servers[0].sockets[0].getsockname()[1]
    finally:
        server.should_exit = server.force_exit = True
        await serving


async def says_yes(scope: Message, receive: Receive, send: Send) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"3")]})
    await send({"type": "http.response.body", "body": b"yes"})


HEAD = b"POST /reset HTTP/1.1\r\nHost: 127.0.0.1\r\n"


async def test_of_heads_that_do_not_end_only_so_many_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencode_openenv.openenv_server.MAX_WAITING", 16)
    monkeypatch.setattr("opencode_openenv.openenv_server.HEAD_SECONDS", 3600)  # which would cut them as well
    async with listening(GuardedApplication(says_yes, "a-long-token", 1000)) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(16)]
        for _, writer in opened:
            writer.write(HEAD)
        late = [await asyncio.open_connection("127.0.0.1", port) for _ in range(32)]
        for reader, _ in opened:
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
        reader, writer = late[-1]
        writer.write(HEAD + b"Content-Length: 0\r\nAuthorization: Bearer a-long-token\r\n\r\n")
        assert (await asyncio.wait_for(reader.readuntil(b"yes"), 60)).startswith(b"HTTP/1.1 200")
        for _, writer in (*opened, *late):
            writer.close()


async def test_a_head_that_does_not_end_is_cut_in_time_also_behind_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opencode_openenv.openenv_server.HEAD_SECONDS", 0.3)
    async with listening(GuardedApplication(says_yes, None, 1000)) as port:
        for begun in (b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(begun)
            if begun:
                await asyncio.wait_for(reader.readuntil(b"yes"), 60)
            writer.write(HEAD)
            with suppress(ConnectionError):
                assert await asyncio.wait_for(reader.read(), 60) == b""
            writer.close()


async def test_a_body_is_refused_by_the_length_that_its_head_says() -> None:
    async with listening(GuardedApplication(says_yes, None, 1000)) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(HEAD + b"Content-Length: 10000000000\r\n\r\n")
        assert (await asyncio.wait_for(reader.readline(), 60)).split()[1] == b"413"
        writer.close()


async def test_all_connections_together_hold_no_more_than_a_few_may() -> None:
    held, taken = asyncio.Event(), 0

    async def holds(scope: Message, receive: Receive, send: Send) -> None:
        await held.wait()

    def caller() -> Receive:
        sizes = iter([900])

        async def receive() -> Message:
            nonlocal taken
            if (size := next(sizes, None)) is None:
                await asyncio.Event().wait()
            taken += 1
            return {"type": "websocket.receive", "text": "x" * (size or 0)}

        return receive

    application = GuardedApplication(holds, None, 1000)
    calls = [asyncio.create_task(application(SCOPE, caller(), no_send)) for _ in range(20)]
    await until(lambda: taken == 20)
    await until(lambda: sum(call.done() for call in calls) == 16)
    held.set()
    await asyncio.wait_for(asyncio.gather(*calls), 60)


async def test_nothing_is_sent_to_a_caller_that_is_gone_and_that_is_no_error() -> None:
    """OpenEnv closes every session in the end, also those whose callers left it; uvicorn raises then."""
    left = asyncio.Event()
    delivered: list[str] = []

    async def receive() -> Message:
        await left.wait()
        return {"type": "websocket.disconnect", "code": 1006}

    async def send(message: Message) -> None:
        if left.is_set() or message["type"] == "websocket.broken":
            raise ConnectionResetError("the caller is gone")
        delivered.append(message["type"])

    async def says_goodbye(scope: Message, receive: Receive, send: Send) -> None:
        await send({"type": "websocket.accept"})
        left.set()
        assert (await receive())["type"] == "websocket.disconnect"
        await send({"type": "websocket.close"})

    async def breaks_off(scope: Message, receive: Receive, send: Send) -> None:
        for kind in ("websocket.accept", "websocket.broken", "websocket.send"):
            await send({"type": kind})

    await asyncio.wait_for(GuardedApplication(says_goodbye, None, 1000)(SCOPE, receive, send), 10)
    left.clear()
    await asyncio.wait_for(GuardedApplication(breaks_off, None, 1000)(SCOPE, receive, send), 10)
    assert delivered == ["websocket.accept", "websocket.accept"]


async def test_an_application_s_own_error_is_not_hidden() -> None:
    async def broken(scope: Message, receive: Receive, send: Send) -> None:
        raise RuntimeError("a fault of its own")

    receive, _ = sent()
    with pytest.raises(RuntimeError, match="a fault of its own"):
        await asyncio.wait_for(GuardedApplication(broken, None, 1000)(SCOPE, receive, no_send), 10)


async def test_messages_that_are_taken_do_not_add_up() -> None:
    asked = asyncio.Semaphore(1)
    seen: list[str] = []

    async def receive() -> Message:
        await asked.acquire()
        return {"type": "websocket.receive", "text": "x" * 900}

    async def reads(scope: Message, receive: Receive, send: Send) -> None:
        while len(seen) < 20:
            seen.append((await receive())["text"])
            asked.release()

    await asyncio.wait_for(GuardedApplication(reads, None, 1000)(SCOPE, receive, no_send), 10)
    assert seen == ["x" * 900] * 20
