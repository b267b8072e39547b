"""Faults, provoked over real HTTP."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from opencode_env.scripted_model import (
    Fault,
    FaultKind,
    FaultyPolicy,
    Reply,
    RequestOutcome,
    ScriptedModel,
    ScriptPolicy,
    ToolCall,
)
from pydantic import ValidationError

from tests.scripted_model.client import Received, assistant, send, user
from tests.support.machine import assert_no_longer
from tests.support.replies import fault, faulty
from tests.support.waiting import until

TEXT = "0123456789" * 10
CALL = ToolCall(name="bash", arguments={"command": "echo " + TEXT})
SAID = Reply(text=TEXT)


async def one(kind: FaultKind, *, stream: bool = True, reply: Reply = SAID, **settings: Any) -> Received:
    """The answer to one request that has this fault."""
    spoilt = reply.model_copy(update={"faults": fault(kind, **settings)})
    async with ScriptedModel(ScriptPolicy.of(spoilt), chunk_characters=8) as model:
        return await send(model, stream=stream)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [400, 401, 404, 408, 422, 429, 500, 503])
async def test_a_status_comes_with_body_and_retry_after(status: int, stream: bool) -> None:
    received = await one(FaultKind.STATUS, stream=stream, status=status, body="neutral", retry_after=1.5)
    assert (received.status, received.raw, received.headers.get("retry-after")) == (status, b"neutral", "1.5")


async def test_a_status_without_a_body_carries_an_error_object() -> None:
    received = await one(FaultKind.STATUS, status=503)
    assert received.json["error"]["code"] == 503
    assert "retry-after" not in received.headers


async def test_overflow_is_vllms_400() -> None:
    received = await one(FaultKind.OVERFLOW, window=2048)
    assert received.status == 400
    assert "maximum context length is 2048 tokens" in received.json["error"]["message"]


async def test_html_comes_with_200() -> None:
    received = await one(FaultKind.HTML)
    assert (received.status, received.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert received.raw.startswith(b"<html>")


async def test_a_delay_is_before_the_first_byte_and_the_reply_follows() -> None:
    started = time.perf_counter()
    received = await one(FaultKind.DELAY, seconds=0.3)
    assert time.perf_counter() - started >= 0.3
    assert received.joined("content") == TEXT


async def test_slow_chunks_arrive_one_by_one() -> None:
    slow = Reply(text="abcd" * 8, faults=fault(FaultKind.SLOW, seconds=0.05))
    async with ScriptedModel(ScriptPolicy.of(slow), chunk_characters=8) as model, aiohttp.ClientSession() as http:
        body = {"messages": [user("x")], "stream": True}
        async with http.post(f"{model.base_url}/chat/completions", json=body) as response:
            # HTTP's own chunks: a client that is late reads several at once.
            chunks = [data async for data, whole in response.content.iter_chunks() if whole]
    (record,) = model.requests
    assert len(chunks) >= 5
    assert record.finished is not None
    assert record.finished - record.received >= 0.2


async def test_a_slow_plain_answer_is_whole() -> None:
    received = await one(FaultKind.SLOW, seconds=0.001, stream=False)
    assert received.json["choices"][0]["message"]["content"] == TEXT


@pytest.mark.parametrize("after", [0, 1, 8, 37, 100])
async def test_a_cut_stream_ends_after_exactly_so_many_characters(after: int) -> None:
    received = await one(FaultKind.CUT, after=after)
    assert isinstance(received.broken, aiohttp.ClientPayloadError)
    assert (received.status, received.joined("content"), received.finish_reasons) == (200, TEXT[:after], [])


async def test_a_cut_can_fall_into_the_arguments_of_a_tool_call() -> None:
    received = await one(FaultKind.CUT, after=30, reply=Reply(text="0123456789", tool_calls=(CALL,)))
    deltas = [chunk["choices"][0]["delta"] for chunk in received.chunks]
    calls = [call for delta in deltas for call in delta.get("tool_calls", [])]
    assert "".join(call["function"]["arguments"] for call in calls) == CALL.arguments_json[:20]
    assert received.broken is not None


async def test_a_cut_plain_answer_breaks_the_promised_length() -> None:
    received = await one(FaultKind.CUT, stream=False)
    assert isinstance(received.broken, aiohttp.ClientPayloadError)
    assert 0 < len(received.raw) < int(received.headers["content-length"])


async def test_an_error_event_in_mid_stream() -> None:
    received = await one(FaultKind.SSE_ERROR, after=20, body="engine died")
    assert received.joined("content") == TEXT[:20]
    assert received.chunks[-1]["error"]["message"] == "engine died"
    assert (received.events[-1], received.broken) == ("[DONE]", None)


async def test_malformed_sse_is_an_event_that_is_no_json() -> None:
    received = await one(FaultKind.MALFORMED_SSE, after=20)
    with pytest.raises(ValueError, match="Unterminated"):
        _ = received.chunks
    assert received.broken is None


async def test_a_stream_without_finish_reason_ends_properly() -> None:
    received = await one(FaultKind.NO_FINISH)
    assert (received.joined("content"), received.finish_reasons, received.events[-1]) == (TEXT, [], "[DONE]")


async def test_a_stream_without_done_has_its_finish_reason() -> None:
    received = await one(FaultKind.NO_DONE)
    assert received.finish_reasons == ["stop"]
    assert "[DONE]" not in received.events


@pytest.mark.parametrize("stream", [True, False])
async def test_usage_can_be_absent(stream: bool) -> None:
    assert b"usage" not in (await one(FaultKind.NO_USAGE, stream=stream)).raw


@pytest.mark.parametrize("stream", [True, False])
async def test_tool_calls_can_come_without_id(stream: bool) -> None:
    received = await one(FaultKind.NO_TOOL_CALL_ID, stream=stream, reply=Reply(tool_calls=(CALL,)))
    assert b'"bash"' in received.raw
    assert b'"id":"call' not in received.raw.replace(b" ", b"")


@pytest.mark.parametrize("after", [None, 10])
async def test_a_hang_lasts_until_the_client_goes(after: int | None) -> None:
    hanging = Reply(text=TEXT, faults=fault(FaultKind.HANG, after=after))
    async with ScriptedModel(ScriptPolicy.of(hanging)) as model:
        call = asyncio.create_task(send(model))
        await model.wait_for_requests(1)
        await asyncio.sleep(0.2)
        assert model.active == 1
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await until(lambda: not model.active)
    assert model.requests[0].outcome is RequestOutcome.CLIENT_LEFT


async def test_a_hang_of_some_seconds_ends_with_a_closed_connection() -> None:
    assert isinstance((await one(FaultKind.HANG, seconds=0.1)).broken, aiohttp.ServerDisconnectedError)
    received = await one(FaultKind.HANG, seconds=0.1, after=10)
    assert isinstance(received.broken, aiohttp.ClientPayloadError)
    assert received.joined("content") == TEXT[:10]


async def test_stopping_the_server_drops_a_hanging_request_at_once() -> None:
    async with ScriptedModel(ScriptPolicy.of(faulty(FaultKind.HANG))) as model:
        call = asyncio.create_task(send(model))
        await model.wait_for_requests(1)
        started = time.perf_counter()
    taken = time.perf_counter() - started
    assert (await call).broken is not None
    assert model.active == 0
    assert_no_longer(taken, 2)


async def test_a_fault_of_the_first_attempts_lets_a_retry_through() -> None:
    async with ScriptedModel(ScriptPolicy.of(faulty(FaultKind.STATUS, status=429, attempts=2))) as model:
        statuses = [(await send(model, session=session)).status for session in "aaaab"]
    assert statuses == [429, 429, 200, 200, 429]


async def test_attempts_are_counted_for_each_call_of_a_conversation() -> None:
    step = faulty(FaultKind.STATUS, status=500, attempts=1)
    async with ScriptedModel(ScriptPolicy.of(step, step)) as model:
        first = [(await send(model, user("q"))).status for _ in range(2)]
        second = [(await send(model, user("q"), assistant("one"), user("more"))).status for _ in range(2)]
    assert (first, second) == ([500, 200], [500, 200])


async def test_a_retry_with_the_blank_message_of_a_cut_stream_is_the_same_call() -> None:
    cut = Reply(text=TEXT, faults=fault(FaultKind.CUT, attempts=1))
    async with ScriptedModel(ScriptPolicy.of(cut, Reply(text="two"))) as model:
        assert (await send(model, user("q"))).broken is not None
        again = await send(model, user("q"), assistant(""))
    assert again.joined("content") == TEXT


async def test_faults_can_be_added_to_another_policy_by_turn() -> None:
    policy = FaultyPolicy(ScriptPolicy.of(Reply(text="one"), Reply(text="two")), {1: fault(FaultKind.NO_DONE)})
    async with ScriptedModel(policy) as model:
        first = await send(model, user("q"))
        second = await send(model, user("q"), assistant("one"), user("more"))
    assert second.joined("content") == "two"
    assert (first.events[-1] == "[DONE]", second.events[-1] == "[DONE]") == (True, False)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kind": "status"}, 'a status fault needs "status"'),
        ({"kind": "slow"}, 'a slow fault needs "seconds"'),
        ({"kind": "cut", "seconds": 1}, '"seconds" means nothing to a cut fault'),
        ({"kind": "html", "status": 500}, '"status" means nothing to a html fault'),
        ({"kind": "status", "status": 200}, "greater than or equal to 400"),
        ({"kind": "cut", "attempts": 0}, "greater than or equal to 1"),
        ({"kind": "explode"}, "Input should be"),
        ({"kind": "cut", "afer": 1}, "Extra inputs"),
    ],
)
def test_a_fault_with_settings_that_mean_nothing_is_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Fault.model_validate(settings)


def test_every_kind_of_fault_has_a_test_of_its_own() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [kind for kind in FaultKind if f"FaultKind.{kind.name}" not in source] == []
