"""Calls that would end the engine or an agent are calls that fail; all others are left as they are."""

import json
from typing import Any

import pytest
from opencode_env.cli_agent.interception.answer_steps import MAX_ARGUMENT_DEPTH, sound_arguments, with_sound_calls
from verifiers.v1.types import AssistantMessage, Response, ToolCall

DEEPER = MAX_ARGUMENT_DEPTH + 1


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            '{"a": "x", "b": [1]}',
            "[" * MAX_ARGUMENT_DEPTH + "]" * MAX_ARGUMENT_DEPTH,
            '{"a":' * MAX_ARGUMENT_DEPTH,
            "]" * DEEPER,
        ],
        *["[],{}" * DEEPER, json.dumps({"text": '[{"\\' * DEEPER}), json.dumps([["\\"]] * DEEPER)],
    ],
)
def test_arguments_that_can_be_read_or_refused_stay(text: str) -> None:
    assert sound_arguments(text) == text


@pytest.mark.parametrize("text", ["[" * DEEPER, '{"a": ' * DEEPER, '["\\"]",{"a":' * DEEPER, "[ " * 1_000_000])
def test_arguments_that_nest_too_deep_are_no_json_from_the_first_character_on(text: str) -> None:
    assert sound_arguments(text).endswith(text)
    with pytest.raises(json.JSONDecodeError, match="line 1 column 1"):
        json.loads(sound_arguments(text))


def answer(identity: str, arguments: str) -> Response:
    raw: dict[str, Any] = {"id": identity, "type": "function", "function": {"name": "bash", "arguments": arguments}}
    call = ToolCall(id=identity, name="bash", arguments=arguments)
    message = AssistantMessage(tool_calls=[call])
    choices = [{"message": {"role": "assistant", "tool_calls": [raw]}}]
    made = Response(id="r", created=0, model="m", message=message, finish_reason="tool_calls")
    made.raw = {"choices": choices}
    return made


@pytest.mark.parametrize(
    ("identity", "arguments", "sound"),
    [
        ("x", "{}", ("x", "{}")),
        ("toString", "{}", ("call_toString", "{}")),
        ("__proto__", "[" * DEEPER, ("call___proto__", "\ufffd" + "[" * DEEPER)),
    ],
)
def test_an_answer_is_sound_as_a_message_and_as_json(identity: str, arguments: str, sound: tuple[str, str]) -> None:
    found = with_sound_calls(answer(identity, arguments))
    assert [(call.id, call.arguments) for call in found.message.tool_calls or ()] == [sound]
    assert found.raw is not None
    (raw,) = found.raw["choices"][0]["message"]["tool_calls"]
    assert (raw["id"], raw["function"]["arguments"]) == sound


@pytest.mark.parametrize("missing", [True, False])
def test_calls_without_an_id_get_one_each(missing: bool) -> None:
    found = answer("", "{}")
    assert found.raw is not None
    assert found.message.tool_calls is not None
    calls = found.raw["choices"][0]["message"]["tool_calls"]
    if missing:
        del calls[0]["id"]
    calls.append({**calls[0]})
    found.message.tool_calls.append(found.message.tool_calls[0].model_copy())
    with_sound_calls(found)
    ids = [call.id for call in found.message.tool_calls]
    assert [raw["id"] for raw in calls] == ids
    assert len(set(ids)) == 2
    assert all(ids)


@pytest.mark.parametrize(
    ("said", "told"), [("stop", "tool_calls"), ("tool_calls", "tool_calls"), ("length", "length"), (None, None)]
)
def test_an_answer_with_calls_does_not_say_that_it_stopped(said: str | None, told: str | None) -> None:
    made = answer("x", "{}")
    assert made.raw is not None
    made.raw["choices"][0]["finish_reason"] = said
    assert with_sound_calls(made).raw == made.raw
    assert made.raw["choices"][0]["finish_reason"] == told


def test_an_answer_without_calls_stops() -> None:
    made = answer("x", "{}")
    made.raw = {"choices": [{"message": {"content": "Done."}, "finish_reason": "stop"}]}
    with_sound_calls(made)
    assert made.raw["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("raw", [None, {}, {"choices": []}, {"choices": [{"message": None}]}, {"output": [1]}])
def test_other_answers_pass(raw: dict[str, Any] | None) -> None:
    said = answer("x", "{}")
    said.raw = raw
    assert with_sound_calls(said).raw == raw
