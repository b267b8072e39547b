"""Many small requests, packed and broken ones: nothing but a 400 for whoever sends them, and nothing for others."""

import asyncio
import gzip
import json
import logging
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial

import pytest
from aiohttp import web
from opencode_env.cli_agent.interception import MARK_HEADER, GatewayConfig, call_limits, own_calls
from opencode_env.cli_agent.interception.call_limits import BodyMemory, CallSlots
from opencode_env.cli_agent.interception.gateway import error_answer
from opencode_env.cli_agent.rollout import rollout_of
from rollout_sandbox.compat import AFTER_0_4_0
from verifiers.v1.dialects import DIALECTS

from tests.gateway.test_masking import completion, provided
from tests.rlm.role_server import SUB, Rollout, role_server
from tests.support.waiting import until

HELLO = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hello"}]}).encode()


def raw_request(rollout: Rollout, body: bytes, *headers: bytes, path: bytes = b"/v1/chat/completions") -> bytes:
    """The bytes of a request, whose further headers no client would write."""
    lines = [b"POST %s HTTP/1.1" % path, b"Host: x", b"Authorization: Bearer %s" % rollout.secret.encode()]
    lines += [b"Content-Length: %d" % len(body), *headers]
    return b"\r\n".join([*lines, b"", body])


async def opened(rollout: Rollout) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = rollout.url.removeprefix("http://").split(":")
    return await asyncio.open_connection(host, int(port))


async def status_of(rollout: Rollout, data: bytes) -> int:
    """The status of the first answer to these bytes."""
    reader, writer = await opened(rollout)
    writer.write(data)
    try:
        return int((await reader.readline()).split()[1])
    finally:
        writer.close()


BROKEN: dict[str, tuple[bytes, tuple[bytes, ...]]] = {
    "a key that is not text": (HELLO, (b"Idempotency-Key: \xff\xfe",)),
    "a type that is not text": (HELLO, (b'Content-Type: application/json; x="\xff"',)),
    "a mark that is not text": (HELLO, (b"X-Agent-Mark: \xff",)),
    "not packed": (b"xxx", (b"Content-Encoding: gzip",)),
    "cut while packed": (gzip.compress(HELLO)[:20], (b"Content-Encoding: gzip",)),
    "not a number": (HELLO[:-1] + b', "top_p": NaN}', ()),
    "an infinite number": (HELLO[:-1] + b', "top_p": -Infinity}', ()),
    "not a number beside a lone surrogate": (HELLO[:-1] + b', "top_p": NaN, "user": "\\ud800"}', ()),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_what_cannot_be_passed_on_is_answered_400(rollout: Rollout, name: str) -> None:
    body, headers = BROKEN[name]
    status = 200 if name == "a mark that is not text" else 400  # it is taken off before anything else
    for role in ((), (b"X-RLM-Role: sub",)):
        assert await status_of(rollout, raw_request(rollout, body, *headers, *role)) == status
    assert rollout.session.error is None


async def test_packed_bodies_hold_the_memory_that_they_unpack_to() -> None:
    plan = json.dumps({"held": True})
    bodies = [json.dumps({"messages": [{"role": "user", "content": plan + " " * 900_000}]}).encode()] * 12
    bounds = GatewayConfig(max_body=1_000_000)
    async with role_server(gateway=bounds) as server, server.rollout() as rollout, server.rollout() as honest:
        packed = [gzip.compress(body) for body in bodies]
        assert sum(map(len, packed)) < 100_000
        calls = [asyncio.create_task(rollout.post(body, {"Content-Encoding": "gzip"})) for body in packed]
        await server.model.wait_for_requests(4)
        assert {(await honest.ask("beside them")).status for _ in range(20)} == {200}
        assert len(server.model.requests) == 4 + 20
        server.model.released.set()
        assert {answer.status for answer in await asyncio.gather(*calls)} == {200}


async def flood(rollout: Rollout, data: bytes, over: asyncio.Event) -> int:
    """Send the same request again and again over one connection; returns how many were answered."""
    reader, writer = await opened(rollout)
    answered = 0
    try:
        while not over.is_set():
            writer.write(data)
            await writer.drain()
            found = await reader.read(1 << 16)
            if not found:
                break
            answered += found.count(b"HTTP/1.1")
    except ConnectionError:
        pass
    finally:
        writer.close()
    return answered


FLOODS: dict[str, Callable[[Rollout], bytes]] = {
    "no request": lambda rollout: raw_request(rollout, b"[]"),
    "an unknown role": lambda rollout: raw_request(rollout, b"{}", b"X-RLM-Role: boss"),
    "an unknown path": lambda rollout: raw_request(rollout, b"{}", path=b"/v2/nothing"),
    "nobody's": lambda rollout: b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}",
    "nobody's state": lambda rollout: b"GET /state HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("kind", FLOODS)
async def test_who_sends_many_small_requests_for_nothing_waits_by_itself(
    kind: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call_limits, "BURST_SECONDS", 0.2)
    over = asyncio.Event()
    async with role_server() as server, server.rollout() as attacker, server.rollout() as honest:
        began = time.monotonic()
        floods = [asyncio.create_task(flood(attacker, FLOODS[kind](attacker), over)) for _ in range(10)]
        # As long as it takes an unbounded flood to answer many times more than this.
        while time.monotonic() - began < 0.6:
            assert (await honest.ask("beside it")).status == 200
        over.set()
        await asyncio.wait(floods, timeout=5)
        taken = time.monotonic() - began
        for one in floods:
            one.cancel()
        counts = [one.result() for one in floods if one.done() and not one.cancelled() and one.exception() is None]
        most = (0.2 + 0.1 * taken) / call_limits.SECONDS_PER_REFUSAL + 10 * len(floods)
        assert 0 < sum(counts) <= most
        await asyncio.gather(*floods, return_exceptions=True)
    assert len([record for record in caplog.records if record.levelno >= logging.WARNING]) < 60


async def test_what_is_no_http_and_who_leaves_fill_no_log(caplog: pytest.LogCaptureFixture) -> None:
    async with role_server() as server, server.rollout() as rollout:
        for data in (b"\x16\x03\x01 \r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nA: b\x00c\r\n\r\n"):
            assert await status_of(rollout, data) == 400
        for _ in range(3):
            _, writer = await opened(rollout)
            writer.write(raw_request(rollout, HELLO)[:-5])
            await writer.drain()
            writer.close()
            assert (await rollout.ask("still there")).status == 200
    assert [record for record in caplog.records if record.exc_info] == []


async def test_who_gives_up_its_wait_for_memory_holds_up_nobody_behind_it() -> None:
    memory, held = BodyMemory(10), ExitStack()
    await memory.hold(6, held)
    large, small = (asyncio.create_task(memory.hold(size, ExitStack())) for size in (8, 4))
    await until(lambda: len(memory._waiting) == 2)
    large.cancel()
    await asyncio.wait_for(small, 60)


async def test_a_place_that_is_given_to_a_call_as_it_is_cancelled_goes_to_the_next() -> None:
    slots, first = CallSlots(1, lambda _: True), ExitStack()

    async def call() -> bool:
        with ExitStack() as until_end:
            return await slots.place(until_end)

    assert await slots.place(first)
    cancelled, following = (asyncio.create_task(call()) for _ in range(2))
    await until(lambda: slots.waiting == 2)
    first.close()
    cancelled.cancel()
    assert await asyncio.wait_for(following, 60)
    assert slots.active == 0


async def test_who_leaves_the_queue_for_memory_or_a_place_leaves_nothing() -> None:
    memory, gate = BodyMemory(10), CallSlots(1, lambda active: True)

    async def stays(wait: Callable[[ExitStack], Awaitable[object]]) -> None:
        with ExitStack() as until_end:
            await wait(until_end)
            await asyncio.Event().wait()

    waits: list[Callable[[ExitStack], Awaitable[object]]] = [partial(memory.hold, 10), gate.place]
    for wait in waits:
        waiting = [asyncio.create_task(stays(wait)) for _ in range(3)]
        await asyncio.sleep(0)
        for one in waiting:
            one.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3
    with ExitStack() as until_end:
        await memory.hold(10, until_end)
        assert await gate.place(until_end)


async def surrogates(request: web.Request) -> web.StreamResponse:
    """A whole answer with a lone surrogate, and two surrogates that belong together."""
    return web.Response(body=json.dumps(completion("a\ud83d b \ud83d\ude00")).encode(), content_type="application/json")


async def test_a_whole_reply_with_half_a_character_is_a_turn_like_any_other() -> None:
    async with provided(surrogates) as rollout:
        for headers in ({}, SUB):
            answer = await rollout.ask("hello", headers)
            assert (answer.status, answer.text) == (200, "a\ufffd b \U0001f600")
        assert rollout.session.error is None
        assert rollout.main.assistant_messages[-1].content == "a\ufffd b \U0001f600"
        rollout.main.model_dump_json()


async def repeats(request: web.Request) -> web.StreamResponse:
    """As servers that validate by schema do: the error holds what they were sent."""
    sent = (await request.read()).decode()
    message = f"Input should be shorter: {sent} (context_length_exceeded)"
    return web.json_response({"error": {"message": message}}, status=400)


@pytest.mark.parametrize("stream", [False, True])
async def test_an_endpoint_that_repeats_the_request_in_its_error_fills_no_trace(stream: bool) -> None:
    async with provided(repeats) as rollout:
        answer = await rollout.ask("x" * 900_000, stream=stream)
        (call,) = rollout.main.calls
        assert call.error is not None
        for text in (answer.body, call.error.message):
            assert len(text) < 10_000
            assert "Input should be shorter" in text
            assert "context_length_exceeded" in text


async def test_of_a_programs_failing_calls_the_first_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[own_calls.__module__], "RECORDED_PROGRAM_CALLS", 3)
    async with provided(repeats) as rollout:
        mark = {MARK_HEADER: f"{rollout_of(rollout.main).program.new_run()}:own"}
        for headers in (mark, *[{}] * 8, mark):
            assert (await rollout.ask("hello", headers)).status == 400
        assert (len(rollout.main.calls), len(own_calls(rollout.main))) == (2 + 3, 2)
        rollout_of(rollout.main).program.forget()


def test_an_error_says_what_its_status_means_where_the_wire_format_does() -> None:
    (messages,) = [dialect for dialect in DIALECTS if dialect.upstream_path == "/v1/messages"]
    body = json.loads(error_answer(messages, "later", 429).body or b"")  # type: ignore[arg-type]
    kind = "rate_limit_error" if AFTER_0_4_0 else "invalid_request_error"
    assert body["error"] == {"type": kind, "message": "later"}
