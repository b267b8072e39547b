"""What is read once in front of verifiers' server is what the server would have read."""

import json
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent.interception import path, request_steps
from opencode_env.cli_agent.interception.answer_steps import in_one_event
from opencode_env.cli_agent.interception.endpoint import served
from opencode_env.cli_agent.interception.gateway import Call
from opencode_env.cli_agent.interception.request_steps import parse_body
from opencode_env.cli_agent.interception.server import MainSession
from opencode_env.errors import RequestRefused
from verifiers.v1.dialects import ChatDialect
from verifiers.v1.types import Request, UserMessage

from tests.gateway.calls import call_of, session

HEAD = {"id": "one", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({**HEAD, "choices": choices, **more}).encode() + b"\n\n"


def called(index: int, id: str = "", **function: str) -> dict[str, Any]:
    """A piece of a call."""
    return {"tool_calls": [{"index": index, "id": id or f"call_{index}", "type": "function", "function": function}]}


def thought(text: str, **more: Any) -> dict[str, Any]:
    """A piece of reasoning in OpenRouter's form."""
    return {"reasoning_details": [{"type": "reasoning.text", "text": text, **more}]}


USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}
DONE = b"data: [DONE]\n\n"
STREAMS: dict[str, list[bytes]] = {
    "text": [event({"role": "assistant", "content": ""}), event({"content": "Hé"}), event({"content": "llo"}, "stop")],
    "nothing": [event({}, "stop")],
    "reasoning": [event({"reasoning": "a"}), event({"reasoning_content": "b"}), event({"content": "c"}, "length")],
    "details": [
        event(thought("a", id="1")),
        event(thought("b")),
        event(thought("c", id="2", signature="s")),
        event({"content": "c"}, "stop"),
    ],
    "calls": [
        event(called(1, name="write", arguments='{"x"')),
        event(called(0, name="read", arguments="{}")),
        event(called(1, arguments=": 5000.0}")),
        event({}, "tool_calls", usage=USAGE),
    ],
    "a call that is made sound": [event(called(0, id="__proto__", name="x", arguments="[" * 501), "tool_calls")],
    "no id, no kind": [event({"tool_calls": [{"index": 0, "function": {"name": "x", "arguments": ""}}]}, "tool_calls")],
}


def call_with(body: dict[str, Any]) -> Call:
    call = call_of(session())
    call.body = body
    return call


@pytest.mark.parametrize("events", STREAMS.values(), ids=STREAMS)
async def test_an_answer_that_was_read_is_what_reading_the_one_event_gives(events: list[bytes]) -> None:
    call = call_with({})
    passed_on = in_one_event(call, [*events, DONE])
    read, again = served(call).stream_parser(), ChatDialect().stream_parser()
    for one in passed_on:
        read.feed(one)
        again.feed(one)
    found, wanted = read.finish(), again.finish()
    assert found == wanted
    assert {**(found.raw or {}), "object": ""} == {**(wanted.raw or {}), "object": ""}


async def test_each_request_goes_on_with_its_own_body_and_its_own_answer() -> None:
    calls = [call_with({"messages": [], "seed": n}) for n in (1, 2)]
    first, second = map(served, calls)
    sampling = vf.SamplingConfig(temperature=0.5)
    for seed, one in enumerate((first, second), 1):
        sent = {"messages": [], "seed": seed, "model": "m", "temperature": 0.5}
        assert one.apply_overrides({"no": "body"}, "m", sampling) == sent
    in_one_event(calls[0], [*STREAMS["text"], DONE])
    in_one_event(calls[1], [*STREAMS["nothing"], DONE])
    assert [one.stream_parser().finish().message.content for one in (first, second)] == ["Héllo", None]


@pytest.mark.parametrize("inside", [0, 99_990], ids=["outside of texts", "in texts"])
@pytest.mark.parametrize("entries", [99_990, 100_010])
async def test_values_are_counted_wherever_they_stand(
    entries: int, inside: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_steps, "MAX_MESSAGES", entries)
    raw = json.dumps({"texts": ["[{," * 50] * (inside // 100), "messages": [1] * (entries - inside // 100)}).encode()
    if entries > 100_000:
        with pytest.raises(RequestRefused, match="more than 100000 JSON values"):
            await parse_body(raw)
    else:
        assert (await parse_body(raw))[1] == json.loads(raw)


async def test_hooks_of_a_task_see_the_requests_of_main_calls_whenever_they_came() -> None:
    plain = session()
    view = MainSession(plain, lambda: None)
    request = Request(messages=[UserMessage(content="one")], tools=None)
    assert (await view.rewrite_request(request))[0] is request

    def louder(request: Request) -> Request:
        return request.model_copy(update={"messages": [UserMessage(content="ONE")]})

    plain.request_interceptors.append(louder)
    rewritten, records, _ = await view.rewrite_request(request)
    assert [message.content for message in rewritten.messages] == ["ONE"]
    assert len(records) == 1
    view.error = vf.ProviderError("what the server saw")
    plain.release()
    assert (plain.error, view.released) == (view.error, True)


def test_steps_that_are_added_after_one_step_run_in_the_order_of_adding() -> None:
    gateway = call_of(session()).gateway
    first, second, third = (lambda call, name=name: None for name in "abc")
    gateway.add_step(path.RECORD, first, after=request_steps.commit)
    gateway.add_step(path.RECORD, second, after=request_steps.commit)
    gateway.add_step(path.RECORD, third, after=first)
    place = path.RECORD.index(request_steps.commit) + 1
    expected = (*path.RECORD[:place], first, second, third, *path.RECORD[place:])
    assert tuple(gateway.steps(path.RECORD)) == expected
