"""Replies without faults: what a client receives, through plain HTTP and through the openai SDK."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from openai import AsyncOpenAI
from opencode_env.scripted_model import (
    LABEL,
    MODEL_ID,
    ChatRequest,
    Reply,
    RequestOutcome,
    ScriptedModel,
    ScriptPolicy,
    ToolCall,
    Usage,
)

from tests.scripted_model.client import send, user
from tests.support.held_model import HeldModel
from tests.support.machine import assert_no_longer
from tests.support.waiting import PATIENCE_SECONDS, until

LS, READ = {"command": "ls"}, {"filePath": "/app/ü.txt"}
CALLS = (ToolCall(name="bash", arguments=LS), ToolCall(name="read", arguments=READ, id="mine"))
TOOLS = Reply(text="I look.", reasoning="Which files are there?", tool_calls=CALLS)
LONG = Reply(text="Grüße 🎉\u2028\n" * 100)


@pytest.mark.parametrize("reply", [Reply(text="Hi."), TOOLS, LONG, Reply(), Reply(reasoning="Hm.")])
async def test_a_stream_holds_the_same_as_a_plain_answer(reply: Reply) -> None:
    async with ScriptedModel(ScriptPolicy.of(reply), chunk_characters=7) as model:
        streamed, plain = await send(model), await send(model, stream=False)
    message = plain.json["choices"][0]["message"]
    assert streamed.joined("content") == (message["content"] or "") == reply.text
    assert streamed.joined("reasoning_content") == message.get("reasoning_content", "") == reply.reasoning
    assert streamed.finish_reasons == [plain.json["choices"][0]["finish_reason"]]
    assert (streamed.events[-1], streamed.chunks[-1]["choices"]) == ("[DONE]", [])
    assert streamed.headers["content-type"] == "text/event-stream"
    # The request that asks for a stream is a little longer than the other.
    assert streamed.chunks[-1]["usage"]["completion_tokens"] == plain.json["usage"]["completion_tokens"]


GO: Any = {"model": "x", "messages": [{"role": "user", "content": "go"}]}


@asynccontextmanager
async def sdk(reply: Reply, **settings: Any) -> AsyncIterator[AsyncOpenAI]:
    """The SDK at a model that gives this reply."""
    async with (
        ScriptedModel(ScriptPolicy.of(reply), **settings) as model,
        AsyncOpenAI(base_url=model.base_url, api_key="none", max_retries=0) as client,
    ):
        yield client


async def test_the_openai_sdk_reads_a_plain_answer_with_tool_calls() -> None:
    async with sdk(TOOLS) as client:
        answer = await client.chat.completions.create(**GO)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    first, second = choice.message.tool_calls
    assert first.type == second.type == "function"
    assert (first.function.name, first.function.arguments) == ("bash", '{"command": "ls"}')
    assert second.id == "mine"
    assert (answer.model, answer.system_fingerprint) == (MODEL_ID, LABEL)
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_the_openai_sdk_accumulates_a_stream() -> None:
    asked = {**GO, "stream_options": {"include_usage": True}}
    async with sdk(TOOLS, chunk_characters=3) as client, client.chat.completions.stream(**asked) as stream:
        answer = await stream.get_final_completion()
    message = answer.choices[0].message
    assert message.content == "I look."
    assert message.tool_calls is not None
    assert [call.function.arguments for call in message.tool_calls] == [call.arguments_json for call in CALLS]
    assert answer.usage is not None


async def test_the_openai_sdk_lists_the_one_model_and_its_label() -> None:
    async with sdk(Reply(), context_window=99) as client:
        [card] = [card async for card in client.models.list()]
    assert (card.id, card.owned_by) == (MODEL_ID, LABEL)
    assert card.model_extra is not None
    assert card.model_extra["max_model_len"] == 99


async def test_health_says_what_it_is() -> None:
    async with ScriptedModel(ScriptPolicy.of(Reply())) as model, aiohttp.ClientSession() as http:
        response = await http.get(model.base_url.removesuffix("/v1") + "/health")
        assert (response.status, await response.json()) == (200, {"status": "ok", "server": LABEL})


async def test_arguments_that_are_a_string_are_sent_as_they_are() -> None:
    broken = {"name": "nothing", "arguments": '{"command": "ls'}
    async with ScriptedModel(ScriptPolicy.of(Reply(tool_calls=(ToolCall.model_validate(broken),)))) as model:
        plain = await send(model, stream=False)
    assert plain.json["choices"][0]["message"]["tool_calls"][0]["function"] == broken


@pytest.mark.parametrize("reason", ["length", "content_filter", "stop"])
async def test_a_given_finish_reason_and_usage_are_sent(reason: str) -> None:
    reply = Reply(text="Hi", finish_reason=reason, usage=Usage(prompt_tokens=7, completion_tokens=5))
    async with ScriptedModel(ScriptPolicy.of(reply)) as model:
        streamed = await send(model)
    assert streamed.finish_reasons == [reason]
    assert streamed.chunks[-1]["usage"] == {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}


async def test_tool_call_ids_are_the_same_in_every_run_and_differ_between_turns() -> None:
    async def ids() -> list[str]:
        async with ScriptedModel(ScriptPolicy.of(TOOLS, TOOLS)) as model:
            first = await send(model, session="a", stream=False)
            history = first.json["choices"][0]["message"]
            second = await send(model, user("hello"), history, session="a", stream=False)
            return [one.json["choices"][0]["message"]["tool_calls"][0]["id"] for one in (first, second)]

    once = await ids()
    assert len(set(once)) == 2
    assert once == await ids()


async def test_a_request_longer_than_the_window_gets_vllms_400() -> None:
    async with ScriptedModel(ScriptPolicy.of(Reply(text="ok")), context_window=1000) as model:
        long = await send(model, user("x" * 5000))
        short = await send(model, user("x" * 2000))
    assert long.status == 400
    assert long.json["error"]["message"].startswith("This model's maximum context length is 1000 tokens.")
    assert short.joined("content") == "ok"
    assert [record.outcome for record in model.requests] == [RequestOutcome.REFUSED, RequestOutcome.ANSWERED]


@pytest.mark.parametrize("body", ["", "nonsense", "[]", "{}", '{"messages": []}', '{"messages": "hi"}'])
async def test_what_is_no_chat_request_gets_a_400_that_says_so(body: str) -> None:
    async with ScriptedModel(ScriptPolicy.of(Reply())) as model, aiohttp.ClientSession() as http:
        response = await http.post(f"{model.base_url}/chat/completions", data=body)
        assert response.status == 400
        assert "not a chat-completions request" in (await response.json())["error"]["message"]
    assert [record.outcome for record in model.requests] == [RequestOutcome.REFUSED]


async def test_a_request_of_many_megabytes_is_answered() -> None:
    async with ScriptedModel(ScriptPolicy.of(Reply(text="ok"))) as model:
        assert (await send(model, user("x" * 20_000_000))).joined("content") == "ok"


async def test_requests_are_recorded_whole_with_headers_time_reply_and_outcome() -> None:
    reply = Reply(text="ok")
    async with ScriptedModel(ScriptPolicy.of(reply)) as model:
        before = time.time()
        await send(model, user("hi"), session="s1", tools=("bash",), model_name="mine")
        [record] = model.requests
    assert (record.body["model"], record.body["messages"]) == ("mine", [user("hi")])
    assert record.body["tools"][0]["function"]["name"] == "bash"
    assert record.headers["x-session-id"] == "s1"
    assert record.finished is not None
    assert before <= record.received <= record.finished <= time.time()
    assert (record.reply, record.outcome) == (reply, RequestOutcome.ANSWERED)


async def test_nothing_is_recorded_when_recording_is_off() -> None:
    async with ScriptedModel(ScriptPolicy.of(Reply()), record=False) as model:
        await send(model)
    assert model.requests == []


async def test_any_function_is_a_policy_and_its_crash_is_a_500() -> None:
    def policy(request: ChatRequest) -> Reply:
        if request.model == "bad":
            raise RuntimeError("out of ideas")
        return Reply(text=f"{request.model} {request.turn} {request.prompt} {request.tools}")

    async with ScriptedModel(policy) as model:
        good = await send(model, user("p"), model_name="sub", tools=("bash",))
        bad = await send(model, model_name="bad")
    assert good.joined("content") == "sub 0 p ('bash',)"
    assert bad.status == 500
    assert "out of ideas" in bad.json["error"]["message"]
    assert model.requests[1].outcome is RequestOutcome.CRASHED


async def test_calls_are_served_side_by_side_and_counted() -> None:
    async with HeldModel(ScriptPolicy.of(Reply(text="ok")), delay=0.3) as model:
        started = time.perf_counter()
        calls = [asyncio.create_task(send(model, session=str(n))) for n in range(20)]
        await until(lambda: model.active == 20)
        model.released.set()
        await asyncio.gather(*calls)
        elapsed = time.perf_counter() - started
        assert (model.active, model.peak_active) == (0, 20)
    assert elapsed >= 0.3
    assert_no_longer(elapsed, 3)


async def test_it_says_so_when_it_is_not_running_and_can_be_stopped_twice() -> None:
    model = ScriptedModel(ScriptPolicy.of(Reply()))
    with pytest.raises(RuntimeError, match="not running"):
        _ = model.base_url
    async with model:
        port = model.port
        with pytest.raises(RuntimeError, match="runs already"):
            await model.start()
        with pytest.raises(OSError, match="address already in use"):
            await ScriptedModel(ScriptPolicy.of(Reply()), port=port).start()
    await model.stop()
    async with ScriptedModel(ScriptPolicy.of(Reply()), port=port) as again:
        assert again.port == port


async def test_wait_for_requests_returns_once_they_have_arrived() -> None:
    async with HeldModel(ScriptPolicy.of(Reply())) as model:
        call = asyncio.create_task(send(model))
        await asyncio.wait_for(model.wait_for_requests(1), PATIENCE_SECONDS)
        assert (model.requests[0].body["model"], model.requests[0].outcome) == ("any", None)
        model.released.set()
        await call


@pytest.mark.parametrize("reply", [Reply(text="Hi."), TOOLS, LONG, Reply()])
async def test_logprobs_come_when_they_are_asked_for_as_many_as_the_usage_counts(reply: Reply) -> None:
    async with ScriptedModel(ScriptPolicy.of(reply), chunk_characters=7) as model:
        streamed, plain = await send(model, logprobs=True), await send(model, logprobs=True, stream=False)
        unasked = await send(model)
    reported = [choice["logprobs"] for chunk in streamed.chunks for choice in chunk["choices"]]
    tokens = [entry for piece in reported for entry in (piece or {}).get("content", ())]
    assert tokens == plain.json["choices"][0]["logprobs"]["content"]
    assert len(tokens) == plain.json["usage"]["completion_tokens"]
    arguments = "".join(call.arguments_json for call in reply.tool_calls)
    assert "".join(token["token"] for token in tokens) == reply.reasoning + reply.text + arguments
    assert all(token["logprob"] < 0 for token in tokens)
    assert all(choice["logprobs"] is None for chunk in unasked.chunks for choice in chunk["choices"])
