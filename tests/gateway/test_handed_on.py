"""What is read once in front of verifiers' server is what the server would have read."""

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest
import verifiers.v1 as vf
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.cli_agent.interception.handed_on import BODY, handed_on
from opencode_env.cli_agent.interception.main_session import MainSession
from opencode_env.cli_agent.interception.request_body import RequestRefused, parse_body
from opencode_env.cli_agent.interception.whole_streams import in_one_event
from verifiers.v1.agent import make_agent
from verifiers.v1.dialects import ChatDialect, Dialect
from verifiers.v1.harnesses.null import NullHarnessConfig
from verifiers.v1.session import RolloutSession
from verifiers.v1.trace import AgentInfo, Trace, TraceTask
from verifiers.v1.types import Request, UserMessage

HEAD = {"id": "one", "object": "chat.completion.chunk", "created": 7, "model": "m"}


def event(delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One event of a stream."""
    choices = [{"index": 0, "delta": delta, "finish_reason": finish}]
    return b"data: " + json.dumps({**HEAD, "choices": choices, **more}).encode() + b"\n\n"


def called(index: int, **function: str) -> dict[str, Any]:
    """A piece of a call."""
    return {"tool_calls": [{"index": index, "id": f"call_{index}", "type": "function", "function": function}]}


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
    "a call that is made sound": [
        event(
            {"tool_calls": [{**called(0, name="x", arguments="[" * 501)["tool_calls"][0], "id": "__proto__"}]},
            "tool_calls",
        )
    ],
    "no id, no kind": [event({"tool_calls": [{"index": 0, "function": {"name": "x", "arguments": ""}}]}, "tool_calls")],
}


def request_of(body: dict[str, Any] | None) -> web.Request:
    """A request whose body is known, or not."""
    request = make_mocked_request("POST", "/v1/chat/completions")
    if body is not None:
        request[BODY] = body
    return request


async def one_event(events: Sequence[bytes], dialect: Dialect[Any]) -> list[bytes]:
    """The stream as it is passed on."""

    async def stream() -> AsyncIterator[bytes]:
        for one in events:
            yield one

    return [one async for one in in_one_event(stream(), dialect)]


@pytest.mark.parametrize("events", STREAMS.values(), ids=STREAMS)
async def test_an_answer_that_was_read_is_what_reading_the_one_event_gives(events: list[bytes]) -> None:
    dialect = handed_on(ChatDialect(), request_of({}))
    served = dialect.stream_parser()
    passed_on = await one_event([*events, DONE], dialect)
    again = ChatDialect().stream_parser()
    for one in passed_on:
        served.feed(one)
        again.feed(one)
    found, wanted = served.finish(), again.finish()
    assert found == wanted
    assert {**(found.raw or {}), "object": ""} == {**(wanted.raw or {}), "object": ""}


async def test_each_request_goes_on_with_its_own_body_and_its_own_answer() -> None:
    first, second = (handed_on(ChatDialect(), request_of({"messages": [], "seed": n})) for n in (1, 2))
    sampling = vf.SamplingConfig(temperature=0.5)
    assert first.apply_overrides({"no": "body"}, "m", sampling) == {
        "messages": [],
        "seed": 1,
        "model": "m",
        "temperature": 0.5,
    }
    assert second.apply_overrides({"no": "body"}, "m", sampling)["seed"] == 2
    await one_event([*STREAMS["text"], DONE], first)
    await one_event([*STREAMS["nothing"], DONE], second)
    assert [one.stream_parser().finish().message.content for one in (first, second)] == ["Héllo", None]


def test_a_request_whose_body_is_not_known_is_read_by_verifiers() -> None:
    dialect = ChatDialect()
    assert handed_on(dialect, request_of(None)) is dialect


@pytest.mark.parametrize("inside", [0, 99_990], ids=["outside of texts", "in texts"])
@pytest.mark.parametrize("entries", [99_990, 100_010])
async def test_values_are_counted_wherever_they_stand(entries: int, inside: int) -> None:
    raw = json.dumps({"texts": ["[{," * 50] * (inside // 100), "messages": [1] * (entries - inside // 100)}).encode()
    if entries > 100_000:
        with pytest.raises(RequestRefused, match="more than 100000 JSON values"):
            await parse_body(raw, GatewayConfig(max_messages=None))
    else:
        assert (await parse_body(raw, GatewayConfig(max_messages=None)))[1] == json.loads(raw)


def session() -> RolloutSession:
    """One that no server knows."""
    client = vf.EvalClientConfig(base_url="http://127.0.0.1:9", api_key_var="NO_SUCH_KEY")
    seat = vf.AgentConfig(harness=NullHarnessConfig(id="null"), runtime=vf.SubprocessConfig(), model="m", client=client)
    task: TraceTask[Any] = TraceTask(type="Task", data=vf.TaskData(idx=0, prompt="x"))
    agent = make_agent(seat)
    return RolloutSession(ctx=agent.ctx, trace=Trace(task=task, agent=AgentInfo(config=agent.config)))


async def test_hooks_of_a_task_see_the_requests_of_main_calls_whenever_they_came() -> None:
    plain = session()
    view = MainSession.of(plain)
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
