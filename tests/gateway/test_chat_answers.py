"""Whatever form an endpoint gives an answer, agent and trace get the same words of it, under OpenAI's names."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from aiohttp import web
from verifiers.v1.errors import ProviderError
from verifiers.v1.types import AssistantMessage

from tests.history.asking import OPENCODE, user
from tests.rlm.role_server import SUB, Rollout, role_server
from tests.support.served_app import served

pytestmark = pytest.mark.asyncio(loop_scope="module")

Json = dict[str, Any]
HEAD: Json = {"id": "1", "created": 1, "model": "m"}


def call(name: str | None = None, arguments: str = "", index: int = 0, **fields: Any) -> Json:
    """A piece of a call in a stream."""
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return {"tool_calls": [{"index": index, "function": function, **fields}]}


Answering = Callable[..., AbstractAsyncContextManager[Rollout]]
"""A rollout whose endpoint answers with that message, whole or, when it is asked for a stream, in those pieces.

Args:
    message: the answer's.
    end: its finish reason.
    deltas: its pieces; none = the message is the one piece.
    meanwhile: the finish reason of each piece.
    whole: the JSON of an answer that is not a chat completion.
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answering() -> AsyncIterator[Answering]:
    """Rollouts of one server, one after the other."""
    said: Json = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        message, end = said["message"], said["end"]
        if not (await request.json()).get("stream"):
            choice = {"index": 0, "message": {"role": "assistant", "content": None, **message}}
            choices: list[Json] = [{**choice, "finish_reason": end}]
            given = {**HEAD, "object": "chat.completion", "choices": choices}
            return web.json_response(said.get("whole", given))
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for delta in said.get("deltas", [{"content": None, **message}]):
            choices = [{"index": 0, "delta": delta, "finish_reason": said.get("meanwhile")}]
            await response.write(f"data: {json.dumps({**HEAD, 'choices': choices})}\n\n".encode())
        choices = [{"index": 0, "delta": {}, "finish_reason": end}]
        await response.write(f"data: {json.dumps({**HEAD, 'choices': choices})}\n\ndata: [DONE]\n\n".encode())
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", handler)
    async with served(app) as url:
        client = vf.EvalClientConfig(base_url=f"{url}/v1", api_key_var="NO_SUCH_KEY")
        async with role_server(client=client) as server:

            @asynccontextmanager
            async def answering(message: Json | None = None, end: str = "stop", **more: Any) -> AsyncIterator[Rollout]:
                said.clear()
                said.update(more, message=message or {}, end=end)
                async with server.rollout(harness=OPENCODE) as rollout:
                    yield rollout

            yield answering


async def ask(
    rollout: Rollout,
    messages: Sequence[Json] = (user("go"),),
    *,
    stream: bool,
    tools: Sequence[str] = (),
    headers: Mapping[str, str] | None = None,
) -> Json:
    """The choice that the agent gets; its message is under `message` in either form."""
    body: Json = {"model": "m", "messages": list(messages), "stream": stream}
    if tools:
        body["tools"] = [{"type": "function", "function": {"name": name, "parameters": {}}} for name in tools]
    answer = await rollout.post(json.dumps(body), {"x-session-id": "ses_1", **(headers or {})})
    assert answer.status == 200, answer.body
    text = answer.body.splitlines()[0].removeprefix("data: ") if stream else answer.body
    (choice,) = json.loads(text)["choices"]
    return {"message": choice.get("delta"), **choice}


def last(trace: Any) -> AssistantMessage:
    message = trace.assistant_messages[-1]
    assert isinstance(message, AssistantMessage)
    return message


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("headers", [{}, SUB])
@pytest.mark.parametrize(
    ("message", "pieces"),
    [
        ({"refusal": "I can't do that."}, [{"refusal": "I can't "}, {"refusal": "do that."}]),
        (
            {"content": "Well. ", "refusal": "No."},
            [{"role": "assistant", "refusal": None}, {"content": "Well. "}, {"refusal": "No."}],
        ),
    ],
    ids=["alone", "behind a text"],
)
async def test_a_refusal_is_what_the_model_said(
    answering: Answering, stream: bool, headers: dict[str, str], message: Json, pieces: list[Json]
) -> None:
    async with answering(message, deltas=pieces) as rollout:
        choice = await ask(rollout, stream=stream, headers=headers)
        trace = rollout.sub if headers else rollout.main
        assert choice["message"]["content"] == last(trace).content == "".join(message.values())
        assert not choice["message"].get("refusal")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("reasoning", "reasoning_content"), [("short", "long"), ("", "long"), ("short", ""), ("same", "same")]
)
async def test_reasoning_under_two_names_is_one_text_for_agent_and_trace(
    answering: Answering, stream: bool, reasoning: str, reasoning_content: str
) -> None:
    message = {"content": "so", "reasoning": reasoning, "reasoning_content": reasoning_content}
    async with answering(message) as rollout:
        told = (await ask(rollout, stream=stream))["message"]
        # OpenCode reads the second name, and the first where there is no second.
        heard = told.get("reasoning_content")
        heard = told.get("reasoning") if heard is None else heard
        assert heard == last(rollout.main).reasoning_content == (reasoning or reasoning_content)
        echo = {"role": "assistant", "content": "so", "reasoning_content": heard}
        await ask(rollout, [user("go"), echo, user("on")], stream=stream)
        assert rollout.main.num_branches == 1


NAMES: dict[str, tuple[list[Json], list[str]]] = {
    "two pieces": ([call("ba", id="x", type="function"), call("sh"), call(None, "{}")], ["bash"]),
    "among the arguments": ([call("b", id="x"), call("as", '{"a"'), call("h", ": 1}")], ["bash"]),
    "letter by letter, two calls at once": (
        [call(letter, "", index, id=f"x{index}") for letter in "bash" for index in (0, 1)],
        ["bash", "bash"],
    ),
    "again with each piece": ([call("bash", id="x"), call("bash", "{"), call("bash", "}")], ["bash"]),
    "ever longer": ([call("ba", id="x"), call("bash", "{}")], ["bash"]),
    "again, empty": ([call("bash", id="x"), call("", "{}"), call(None, "")], ["bash"]),
    "two equal pieces": ([call("do", id="x"), call("do", "{}")], ["dodo"]),
    "of no tool that is offered": ([call("no", id="x"), call("thing", "{}")], ["nothing"]),
    "again, of no tool that is offered": ([call("nothing", id="x"), call("nothing", "{}")], ["nothing"]),
}


WITHOUT_TOOLS = [(case, False) for case in ("two pieces", "again with each piece")]
"""Pieces are joined and repetitions are not where there is no tool to compare with, either."""


@pytest.mark.parametrize(("case", "tools"), [*((case, True) for case in NAMES), *WITHOUT_TOOLS])
async def test_a_tools_name_in_pieces_is_the_whole_name(answering: Answering, case: str, tools: bool) -> None:
    deltas, names = NAMES[case]
    async with answering(end="tool_calls", deltas=deltas) as rollout:
        choice = await ask(rollout, stream=True, tools=["bash", "sh", "read", "dodo"] * tools)
        assert [one["function"]["name"] for one in choice["message"]["tool_calls"]] == names
        assert [one.name for one in last(rollout.main).tool_calls or ()] == names


ENDS = {
    "stop": ["end_turn", "STOP", "eos", "stop_sequence", "End_Turn", "eos_token"],
    "length": ["max_tokens", "MAX_TOKENS", "model_length"],
    "tool_calls": ["tool_use", "tool_call"],
    "content_filter": ["SAFETY", "refusal"],
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("told", "said"), [(told, said) for told, names in ENDS.items() for said in names])
async def test_the_end_of_an_answer_has_the_name_that_openai_gives_it(
    answering: Answering, told: str, said: str, stream: bool
) -> None:
    async with answering({"content": "so"}, said) as rollout:
        assert (await ask(rollout, stream=stream))["finish_reason"] == told
        assert rollout.main.calls[-1].finish_reason == (None if told == "content_filter" else told)
        assert "gateway" not in rollout.main.info


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("said", ["whatever", "STOP_FOR_A_NEW_REASON", "unknown", "x" * 500])
@pytest.mark.parametrize("headers", [{}, SUB])
async def test_an_end_that_nobody_knows_is_named_by_what_was_said_and_noted(
    answering: Answering, stream: bool, said: str, headers: dict[str, str]
) -> None:
    function = {"index": 0, "id": "x", "type": "function", "function": {"name": "bash", "arguments": "{}"}}
    trace = "sub" if headers else "main"
    for message, told in (({"content": "so"}, "stop"), ({"tool_calls": [function]}, "tool_calls")):
        async with answering(message, said) as rollout:
            assert (await ask(rollout, stream=stream, headers=headers))["finish_reason"] == told
            assert getattr(rollout, trace).calls[-1].finish_reason == told
            assert rollout.main.info["gateway"]["unknown finish reason"] == {said[:200]: 1}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("said", ["error", "abort", "insufficient_system_resource"])
async def test_an_answer_that_its_endpoint_broke_off_is_a_failed_call(
    answering: Answering, stream: bool, said: str
) -> None:
    async with answering({"content": "so f"}, said) as rollout:
        answer = await rollout.ask("go", stream=stream)
        assert answer.status == 503
        assert f"its finish reason is '{said}'" in answer.text
        assert (rollout.main.num_turns, rollout.main.calls[-1].node) == (0, None)


async def test_a_stream_that_names_empty_finish_reasons_only_is_broken_off(answering: Answering) -> None:
    async with answering({"content": "so"}, "", meanwhile="") as rollout:
        answer = await rollout.ask("go", stream=True)
        assert "ended without a finish reason" in answer.text
        assert rollout.main.num_turns == 0
    async with answering({"content": "so"}, "stop", meanwhile="") as rollout:
        assert (await rollout.ask("go", stream=True)).status == 200


ANSWER = {"role": "assistant", "content": "so"}
NO_COMPLETIONS: dict[str, Any] = {
    "a list": ["so"],
    "no choices": {**HEAD, "choices": []},
    "choices left out": {**HEAD, "error": None},
    "a choice that is a text": {**HEAD, "choices": ["so"]},
    "a message that is a text": {**HEAD, "choices": [{"message": "so", "finish_reason": "stop"}]},
    "no message": {**HEAD, "choices": [{"text": "so", "finish_reason": "stop"}]},
    "a refusal of a list": {**HEAD, "choices": [{"message": {**ANSWER, "content": ["so"], "refusal": "no"}}]},
}


@pytest.mark.parametrize("case", NO_COMPLETIONS)
async def test_an_answer_that_is_no_chat_completion_is_the_endpoints_failure(answering: Answering, case: str) -> None:
    async with answering(whole=NO_COMPLETIONS[case]) as rollout:
        answer = await rollout.ask("go")
        assert answer.status == 502
        assert isinstance(rollout.session.error, ProviderError)
