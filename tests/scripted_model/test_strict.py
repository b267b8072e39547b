"""The strict mode refuses what a strict provider refuses, and only that; streams may bring calls in any order."""

import json
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy, ToolCall
from pydantic import ValidationError
from verifiers.v1.dialects import ChatDialect

from tests.scripted_model.client import send
from tests.support.strict_model import StrictModel, problem_of

USER = {"role": "user", "content": "go"}


def answer(*calls: tuple[str, str, str], content: str | None = None) -> dict[str, Any]:
    functions = [(identity, {"name": name, "arguments": arguments}) for identity, name, arguments in calls]
    made: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        made["tool_calls"] = [{"id": own, "type": "function", "function": function} for own, function in functions]
    return made


def result(identity: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": identity, "content": ""}


GOOD = [
    [USER],
    [USER, answer(content="Yes."), USER],
    [USER, answer(("a", "bash", "{}"), ("b", "read", '{"x": 1e2}')), result("b"), result("a")],
    [USER, answer(content="Yes."), answer(content="And now?")],
]
BAD = {
    "says nothing": [USER, answer(content=""), USER],
    "has no result": [USER, answer(("a", "bash", "{}"))],
    "result of call": [USER, answer(("a", "bash", "{}")), USER],
    "answers no tool call": [USER, result("a")],
    "several calls of one id": [USER, answer(("a", "bash", "{}"), ("a", "bash", "{}")), result("a")],
    "not a JSON object": [USER, answer(("a", "bash", "[]")), result("a")],
    "name that no tool can have": [USER, answer(("a", " bash ", "{}")), result("a")],
    "has no id": [USER, answer(("", "bash", "{}")), result("")],
    "role is unknown": [{"role": "robot", "content": "x"}],
}


@pytest.mark.parametrize("messages", GOOD)
def test_what_every_provider_takes_is_taken(messages: list[dict[str, Any]]) -> None:
    assert problem_of({"messages": messages}) is None


@pytest.mark.parametrize("problem", BAD)
async def test_what_a_strict_provider_refuses_is_a_400_only_in_strict_mode(problem: str) -> None:
    for strict, status in ((True, 400), (False, 200)):
        async with StrictModel(ScriptPolicy.of(Reply(text="x")), strict=strict) as model:
            received = await send(model, *BAD[problem], stream=False)
        assert (received.status, problem in received.raw.decode()) == (status, strict)


@pytest.mark.parametrize("text", ['{"a": NaN}', '{"a": "\\ud83d"}', '{"a": ' + "[" * 300 + "]" * 300 + "}", "null", ""])
def test_arguments_that_some_reader_does_not_take_are_refused(text: str) -> None:
    assert problem_of({"messages": [USER, answer(("a", "bash", text)), result("a")]}) is not None


async def test_a_stream_brings_calls_in_the_order_of_their_arrivals_and_reasoning_under_its_key() -> None:
    calls = (ToolCall(name="first", id="a"), ToolCall(name="second", id="b"))
    reply = Reply(tool_calls=calls, arrivals=(1, 0), reasoning="hm", reasoning_key="reasoning")
    async with ScriptedModel(ScriptPolicy.of(reply)) as model:
        text = (await send(model, USER)).raw.decode()
    assert text.index('"second"') < text.index('"first"')
    assert '{"reasoning":"hm"}' in text


async def test_a_mixed_stream_brings_every_part_piece_by_piece_alternately() -> None:
    calls = (ToolCall(name="first", id="a", arguments='{"a": 1}'), ToolCall(name="second", id="b", arguments='{"b":2}'))
    reply = Reply(text="text", reasoning="why", tool_calls=calls, mixed=True, null_text=True)
    parser = ChatDialect().stream_parser()
    async with ScriptedModel(ScriptPolicy.of(reply), chunk_characters=2) as model:
        events = (await send(model, USER)).raw.split(b"\n\n")
    for event in events:
        parser.feed(event + b"\n\n")
    kinds = [next(iter(json.loads(event[6:])["choices"][0]["delta"].items()), None) for event in events[1:9]]
    assert [kind and kind[0] for kind in kinds] == ["reasoning_content", "content", *["tool_calls"] * 2] * 2
    assert b'"content":null' in events[0]
    message = parser.finish().message
    assert (message.content, message.reasoning_content) == ("text", "why")
    assert [call.arguments for call in message.tool_calls or ()] == ['{"a": 1}', '{"b":2}']


def test_arrivals_name_every_call_once() -> None:
    with pytest.raises(ValidationError, match="arrivals"):
        Reply(tool_calls=(ToolCall(name="one"),), arrivals=(0, 0))
