"""Whatever form an endpoint gives an answer, agent and trace get the same words of it, under OpenAI's names."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from aiohttp import web
from opencode_env.cli_agent.interception import GatewayConfig
from opencode_env.cli_agent.interception.answer_steps import NOT_AGAIN, in_one_event, with_sound_calls
from opencode_env.cli_agent.interception.chat_answers import ESTIMATED
from verifiers.v1.dialects import ChatDialect
from verifiers.v1.dialects.chat import ChatStreamParser
from verifiers.v1.errors import ProviderError
from verifiers.v1.types import AssistantMessage

from tests.gateway.calls import call_of, session
from tests.history.asking import OPENCODE, echo, result, user
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
    body: the bytes of the whole answer, of content type `kind`, `status` and `headers`; without `framed`, they end with
        the connection.
    whole_asked: whether the endpoint is not to be asked for streams.
"""


ASKED: list[Json] = []
"""The bodies that reached the endpoint of the newest rollout."""


async def as_told(request: web.Request, said: Json) -> web.StreamResponse:
    """Bytes as the endpoint's answer."""
    headers = {"Content-Type": said.get("kind", "text/event-stream"), **said.get("headers", {})}
    if said.get("framed", True):
        return web.Response(body=said["body"], status=said.get("status", 200), headers=headers)
    assert request.transport is not None
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    request.transport.write(f"HTTP/1.1 200 OK\r\n{head}Connection: close\r\n\r\n".encode() + said["body"])
    request.transport.close()
    return web.Response()


def events(*chunks: Json, done: bool = True) -> bytes:
    """A stream of these chunks."""
    parts = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return "".join([*parts, *(["data: [DONE]\n\n"] if done else [])]).encode()


def chunk(delta: Json, end: str | None = None, **more: Any) -> Json:
    return {**HEAD, "choices": [{"index": 0, "delta": delta, "finish_reason": end}], **more}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def answering() -> AsyncIterator[Answering]:
    """Rollouts of one server, one after the other."""
    said: Json = {}

    async def handler(request: web.Request) -> web.StreamResponse:
        message, end = said["message"], said["end"]
        ASKED.append(await request.json())
        if "body" in said:
            return await as_told(request, said)
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
        gateways = [GatewayConfig(), GatewayConfig(ask_streamed=False)]
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(role_server(client=client, gateway=one)) for one in gateways]

            @asynccontextmanager
            async def answering(message: Json | None = None, end: str = "stop", **more: Any) -> AsyncIterator[Rollout]:
                ASKED.clear()
                said.clear()
                said.update(more, message=message or {}, end=end)
                async with servers[more.get("whole_asked", False)].rollout(harness=OPENCODE) as rollout:
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
async def test_the_former_name_of_a_call_ends_an_answer_without_calls_too(answering: Answering, stream: bool) -> None:
    async with answering({"content": "so"}, "function_call") as rollout:
        assert (await ask(rollout, stream=stream))["finish_reason"] == "stop"
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
        assert (await rollout.ask("go", stream=True)).text == NOT_AGAIN
        (failed,) = [one.error for one in rollout.main.calls]
        assert failed is not None
        assert "ended without a finish reason" in failed.message
        assert rollout.main.info["gateway"]["unusable"]
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


def piece(index: Any = ..., identity: Any = ..., name: Any = ..., arguments: Any = ..., **more: Any) -> Json:
    """A delta with a piece of a call that has these fields only."""
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not ...}
    given = {key: value for key, value in (("index", index), ("id", identity)) if value is not ...}
    return {"tool_calls": [{**given, **({"function": function} if function else {}), **more}]}


def both(*deltas: Json) -> Json:
    """Pieces of several calls in one delta."""
    return {"tool_calls": [one for delta in deltas for one in delta["tool_calls"]]}


A, B = '{"command":"ls"}', '{"command":"pwd"}'
TWO = [("x", "bash", A), ("y", "read", B)]
INDICES: dict[str, tuple[list[Json], Sequence[tuple[str | None, str, str]]]] = {
    "no index, whole": ([piece(..., "x", "bash", A), piece(..., "y", "read", B)], TWO),
    "null for an index": ([piece(None, "x", "bash", A), piece(None, "y", "read", B)], TWO),
    "0 for each": ([piece(0, "x", "bash", A), piece(0, "y", "read", B)], TWO),
    "0 for each, in one delta": ([both(piece(0, "x", "bash", A), piece(0, "y", "read", B))], TWO),
    "no index, in one delta": ([both(piece(..., "x", "bash", A), piece(..., "y", "read", B))], TWO),
    "no index, in pieces": (
        [
            *(piece(..., "x", "bash", ""), piece(..., ..., ..., A[:5]), piece(..., ..., ..., A[5:])),
            *(piece(..., "y", "read", B[:3]), piece(..., None, None, B[3:])),
        ],
        TWO,
    ),
    "0 for each, in pieces": (
        [
            *(piece(0, "x", "bash", ""), piece(0, "", None, A[:5]), piece(0, ..., ..., A[5:])),
            *(piece(0, "y", "read", B[:3]), piece(0, "y", ..., B[3:])),
        ],
        TWO,
    ),
    "no index and no id": (
        [piece(..., ..., "bash", A), piece(..., None, "bash", A[:3]), piece(..., ..., ..., A[3:])],
        [(None, "bash", A), (None, "bash", A)],
    ),
    "0 for each and no id": (
        [piece(0, ..., "bash", A), piece(0, ..., "read", B)],
        [(None, "bash", A), (None, "read", B)],
    ),
    "one id for both, no index": ([piece(..., "x", "bash", A), piece(..., "x", "read", B)], [TWO[0], ("x", "read", B)]),
    "the id again with each piece, no index": (
        [piece(..., "x", "bash", ""), piece(..., "x", ..., A[:4]), piece(..., "x", "bash", A[4:])],
        TWO[:1],
    ),
    "the id again with each piece": ([piece(0, "x", "bash", ""), piece(0, "x", ..., A)], TWO[:1]),
    "an empty id with each piece": ([piece(0, "x", "bash", ""), piece(0, "", ..., A)], TWO[:1]),
    "the whole call again at the end": ([piece(0, "x", "bash", A), piece(0, "x", "bash", A)], TWO[:1]),
    "the whole arguments again": ([piece(0, "x", "bash", A), piece(0, ..., ..., A)], TWO[:1]),
    "indices from 1 on": ([piece(1, "x", "bash", A), piece(2, "y", "read", B)], TWO),
    "indices that arrive 1, 0": ([piece(1, "y", "read", B), piece(0, "x", "bash", A)], TWO),
    "two calls at once": (
        [
            *(piece(0, "x", "bash", ""), piece(1, "y", "read", ""), piece(1, ..., ..., B[:4])),
            *(piece(0, ..., ..., A[:2]), piece(0, ..., ..., A[2:]), piece(1, ..., ..., B[4:])),
        ],
        TWO,
    ),
    "an id behind the name": ([piece(0, ..., "bash", ""), piece(0, "x", ..., A)], TWO[:1]),
    "a name behind the id": ([piece(0, "x", ..., ""), piece(0, ..., "bash", A)], TWO[:1]),
    "another type": ([piece(0, "x", "bash", A, type="tool_use")], TWO[:1]),
    "objects for arguments": (
        [piece(0, "x", "bash", {"command": "ls"}), piece(1, "y", "read", {"command": "pwd"})],
        TWO,
    ),
    "no arguments": ([piece(0, "x", "bash"), piece(1, "y", "read", None)], [("x", "bash", ""), ("y", "read", "")]),
    "a name that was sampled empty": ([piece(0, "x", "", A)], [("x", "", A)]),
}


@pytest.mark.parametrize("case", INDICES)
async def test_calls_are_told_apart_whatever_their_index(answering: Answering, case: str) -> None:
    deltas, calls = INDICES[case]
    async with answering(end="tool_calls", deltas=deltas) as rollout:
        told = (await ask(rollout, stream=True, tools=["bash", "read"]))["message"]["tool_calls"]
        heard = last(rollout.main).tool_calls or ()
        # What an agent's SDK needs: an index of each, an id, texts.
        assert [one["index"] for one in told] == [*range(len(calls))]
        given = [(one["id"], one["function"]["name"], one["function"]["arguments"]) for one in told]
        assert given == [(one.id, one.name, one.arguments) for one in heard]
        assert [one[1:] for one in given] == [one[1:] for one in calls]
        assert all(one[0] == wanted[0] if wanted[0] else one[0] for one, wanted in zip(given, calls, strict=True))
        assert len({one[0] for one in given}) == len({wanted[0] or number for number, wanted in enumerate(calls)})


BROKEN_CALLS: dict[str, tuple[list[Json], str]] = {
    "an id under one index, its arguments under another": (
        [piece(0, "x", "bash", ""), piece(1, ..., ..., A)],
        "does not say of which",
    ),
    "the id with them": ([piece(0, "x", "bash", ""), piece(1, "x", ..., A)], "does not say of which"),
    "a name under another index": ([piece(0, "x"), piece(1, ..., "bash", A)], "does not say of which"),
    "arguments of nothing": ([piece(..., ..., ..., A)], "does not say of which"),
    "an id alone": ([piece(0, "x")], "does not say of which"),
    "two ids under one index, the first one's arguments not whole": (
        [piece(0, "x", "bash", A[:4]), piece(0, "y", "read", B)],
        "two ids under one index",
    ),
    "another id without a name": ([piece(0, "x", "bash", A), piece(0, "y", ..., B)], "two ids under one index"),
    "an index that is a text": ([piece("0", "x", "bash", A)], "no number for an index"),
}


@pytest.mark.parametrize("case", BROKEN_CALLS)
async def test_pieces_that_do_not_say_which_call_they_are_of_are_a_failed_call(answering: Answering, case: str) -> None:
    deltas, words = BROKEN_CALLS[case]
    async with answering(end="tool_calls", deltas=deltas) as rollout:
        answer = await rollout.ask("go", stream=True)
        assert answer.status >= 400
        (failed,) = [one.error for one in rollout.main.calls]
        assert failed is not None
        assert failed.type == "ProviderError"
        assert words in failed.message
        assert rollout.main.num_turns == 0


USAGE = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
ROLE = chunk({"role": "assistant", "content": ""})
RECORDED: dict[str, list[Json]] = {
    "a text": [
        ROLE,
        chunk({"content": "Hel"}),
        chunk({"content": "lo"}),
        chunk({}, "stop"),
        {**HEAD, "choices": [], "usage": USAGE},
    ],
    "usage with the end": [chunk({"role": "assistant", "content": "Hi"}), chunk({"content": ""}, "stop", usage=USAGE)],
    "usage that grows": [
        chunk({"content": "a"}, usage={**USAGE, "completion_tokens": 1}),
        chunk({}, "stop", usage=USAGE),
    ],
    "details in the usage": [
        chunk({"content": "a"}, "stop"),
        {
            **HEAD,
            "choices": [],
            "usage": {
                **USAGE,
                "cost": 0.5,
                "prompt_tokens_details": {"cached_tokens": 3},
                "completion_tokens_details": None,
            },
        },
    ],
    "a thought, then calls": [
        chunk({"role": "assistant", "content": None, "reasoning_content": "Let me"}),
        chunk({"reasoning_content": " look.", "content": None}),
        chunk({"content": "\n\n"}),
        chunk(piece(0, "call_1", "bash", "", type="function")),
        *[chunk(piece(0, ..., ..., part)) for part in ('{"comm', 'and": "l', 's"}')],
        chunk(piece(1, "call_2", "read", "", type="function")),
        chunk(piece(1, ..., ..., '{ "path" : "x" }')),
        chunk({}, "tool_calls"),
        {**HEAD, "choices": [], "usage": USAGE},
    ],
    "null, wherever there is nothing": [
        chunk(
            {
                "role": "assistant",
                "content": None,
                "reasoning": "Hm",
                "refusal": None,
                "tool_calls": None,
                "function_call": None,
            }
        ),
        chunk(piece(0, "c", "bash", None, type="function") | {"content": None}, usage=None),
        chunk(piece(0, None, None, "{}", type=None)),
        chunk({"content": None}, "tool_calls", usage=USAGE),
    ],
    "reasoning in parts": [
        chunk(
            {
                "content": "",
                "reasoning": "We",
                "reasoning_details": [{"type": "reasoning.text", "text": "We", "index": 0, "format": "f"}],
            }
        ),
        chunk(
            {
                "content": "",
                "reasoning": " can",
                "reasoning_details": [{"type": "reasoning.text", "text": " can", "index": 0, "signature": "s"}],
            }
        ),
        chunk({"reasoning_details": [{"type": "reasoning.encrypted", "data": "xyz", "id": "r"}]}),
        chunk({"content": "so"}, "stop", usage=USAGE),
    ],
    "no role, an empty first chunk": [
        {"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []},
        chunk({"content": "ä"}),
        chunk({"content": "😀 \u2028"}, "length", usage=USAGE),
    ],
    "a custom tool": [
        chunk({"tool_calls": [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sh", "input": "l"}}]}),
        chunk({"tool_calls": [{"index": 0, "custom": {"input": "s"}}]}, "tool_calls", usage=USAGE),
    ],
    "other choices beside": [
        {**HEAD, "choices": [{"index": 1, "delta": {"content": "no"}}, {"index": 0, "delta": {"content": "yes"}}]},
        chunk({}, "stop", usage=USAGE),
    ],
    "nothing said": [chunk({"role": "assistant"}), chunk({}, "stop", usage=USAGE)],
}
"""Streams in the forms of OpenAI, Azure, vLLM, SGLang, llama.cpp, DeepSeek and OpenRouter."""


@pytest.mark.parametrize("case", RECORDED)
async def test_an_ordinary_stream_goes_on_byte_for_byte_as_verifiers_reads_it(case: str) -> None:
    stream = [f"data: {json.dumps(one)}\n\n".encode() for one in RECORDED[case]]
    stream = [b": PROCESSING\n\n", *stream, b"data: [DONE]\n\n"]
    parser = ChatStreamParser()
    for event in stream:
        parser.feed(event)
    read = with_sound_calls(parser.finish())
    call = call_of(session())
    assert in_one_event(call, stream) == ChatDialect().stream_events(read.raw or {})
    assert call.answer == read
    assert (call.estimated, any(call.call_fields)) == (False, False)


END = chunk({}, "stop")
ODD: dict[str, tuple[Json, int | None]] = {
    "no id": ({"id": None}, 12),
    "a number for an id": ({"id": 7}, 12),
    "no model": ({"model": None}, 12),
    "no time": ({"created": None}, 12),
    "parts of seconds": ({"created": 1700000000.25}, 12),
    "milliseconds": ({"created": 1752978879176}, 12),
    "no usage": ({"usage": None}, None),
    "an empty usage": ({"usage": {}}, None),
    "no count of the answer": ({"usage": {"prompt_tokens": 5, "total_tokens": 12}}, 12),
    "no count of the prompt": ({"usage": {"completion_tokens": 7, "total_tokens": 12}}, 12),
    "no total": ({"usage": {"prompt_tokens": 5, "completion_tokens": 7}}, 12),
    "a prompt alone": ({"usage": {"prompt_tokens": 5, "completion_tokens": None}}, None),
    "floats": ({"usage": {"prompt_tokens": 5.0, "completion_tokens": 7.0, "total_tokens": 12.0}}, 12),
    "empty details": ({"usage": {**USAGE, "prompt_tokens_details": None, "completion_tokens_details": {}}}, 12),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("case", ODD)
async def test_harmless_oddities_are_an_answer_in_openais_form(answering: Answering, case: str, stream: bool) -> None:
    odd, tokens = ODD[case]
    fields = {"usage": USAGE, **odd}
    message = {"message": {"role": "assistant", "content": "so"}, "finish_reason": "stop"}
    body = events({**chunk({"content": "so"}), **fields}, {**END, **fields})
    whole = json.dumps({**HEAD, "choices": [{"index": 0, **message}], **fields}).encode()
    kind = "text/event-stream" if stream else "application/json"
    async with answering(body=body if stream else whole, kind=kind) as rollout:
        answer = await rollout.ask("go", stream=stream)
        assert answer.status == 200, answer.body
        told = json.loads(answer.body.splitlines()[0].removeprefix("data: ") if stream else answer.body)
        assert [type(told[name]) for name in ("id", "model", "created")] == [str, str, int]
        assert {type(told["usage"][name]) for name in USAGE} == {int}
        (one,) = rollout.main.calls
        assert one.usage is not None
        assert one.usage.total_tokens == told["usage"]["total_tokens"]
        # An estimate is marked, and counts against the budgets of the seat.
        assert rollout.main.info.get(ESTIMATED) == (None if tokens else [one.node])
        assert one.usage.total_tokens == tokens if tokens else one.usage.completion_tokens > 0


BREAKING: dict[str, tuple[Any, str]] = {
    "a text for a time": ({"created": "now"}, "created"),
    "a text for usage": ({"usage": "12 tokens"}, "usage"),
    "texts for counts": ({"usage": {"prompt_tokens": "5", "completion_tokens": "7"}}, "usage"),
    "a text for details": ({"usage": {**USAGE, "prompt_tokens_details": "none"}}, "usage"),
    "a text for a count of details": ({"usage": {**USAGE, "prompt_tokens_details": {"cached_tokens": "1"}}}, "usage"),
    "a number for the text": ({"choices": [{"index": 0, "delta": {"content": 7}, "finish_reason": "stop"}]}, "content"),
    "a list for a chunk": (["so"], "not a chat completion"),
}


@pytest.mark.parametrize("case", BREAKING)
async def test_an_oddity_that_would_break_an_agent_is_the_endpoints_failure_at_once(
    answering: Answering, case: str
) -> None:
    fields, word = BREAKING[case]
    odd = [{**one, **fields} if isinstance(fields, dict) else fields for one in (chunk({"content": "so"}), END)]
    async with answering(body=events(*odd, END)) as rollout:
        answer = await rollout.ask("go", stream=True)
        assert (answer.status, answer.text) == (400, NOT_AGAIN)
        failed = rollout.main.calls[0].error
        assert failed is not None
        assert (failed.type, failed.status_code) == ("ProviderError", 502)
        assert word in failed.message
        assert rollout.main.info["gateway"]["unusable"]


async def test_a_trace_says_of_its_newest_failed_call_whether_its_answer_was_unusable(answering: Answering) -> None:
    async with answering(body="<p>busy") as rollout:
        await rollout.ask("go", stream=True)
        assert rollout.main.info["gateway"]["unusable"]
    async with answering({"content": "so f"}, "error") as rollout:
        rollout.main.info["gateway"] = {"unusable": True}
        await rollout.ask("go", stream=True)
        assert "unusable" not in rollout.main.info["gateway"]


@pytest.mark.parametrize("framed", [True, False])
async def test_a_stream_without_done_is_whole_where_http_says_that_all_of_it_came(
    answering: Answering, framed: bool
) -> None:
    async with answering(body=events(chunk({"content": "so"}), END, done=False), framed=framed) as rollout:
        answer = await rollout.ask("go", stream=True)
        assert (answer.status == 200) is framed, answer.body
        assert rollout.main.num_turns == int(framed)
        if not framed:
            assert "before its terminal event" in answer.text


WHOLE_ANSWER = {
    **HEAD,
    "object": "chat.completion",
    "choices": [{"index": 0, "message": ANSWER, "finish_reason": "stop"}],
}
NO_STREAMS: dict[str, tuple[str, str, int, list[str]]] = {
    "a page": (
        "<html><body>502 Bad Gateway, try again later</body></html>",
        "text/html",
        502,
        ["text/html", "Bad Gateway"],
    ),
    "a text": ("upstream gone", "text/plain", 502, ["text/plain", "upstream gone"]),
    "a whole answer": (
        json.dumps(WHOLE_ANSWER),
        "application/json",
        502,
        ["application/json", "must stream", "ask-streamed"],
    ),
    "an error": ('{"error": {"message": "no such model", "type": "x"}}', "application/json", 502, ["no such model"]),
    "an error of a kind": (
        '{"error": {"message": "no credit", "code": "insufficient_quota"}}',
        "application/json",
        502,
        ["no credit"],
    ),
    "an error that is a text": ('{"error": "model is loading"}', "application/json", 502, ["model is loading"]),
    "a refused key": ('{"error": {"message": "bad key", "code": 401}}', "application/json", 401, ["bad key"]),
    "an error of the server": ('{"error": {"message": "oops", "code": 500}}', "application/json", 500, ["oops"]),
    "no finish reason": (events(chunk({"content": "so"})).decode(), "text/event-stream", 502, ["finish reason"]),
}


@pytest.mark.parametrize("case", NO_STREAMS)
async def test_what_is_no_stream_is_quoted_and_at_first_not_asked_for_again(answering: Answering, case: str) -> None:
    body, kind, status, words = NO_STREAMS[case]
    async with answering(body=body.encode(), kind=kind) as rollout:
        # OpenCode sends again at 408, 409, 429 and 5xx, and at whatever names such a status or an error of a server.
        answer = await rollout.ask("go", stream=True)
        assert (answer.status, answer.text) == (400, NOT_AGAIN)
        failed = rollout.main.calls[0].error
        assert failed is not None
        assert (failed.type, failed.status_code) == ("ProviderError", status)
        assert all(word in failed.message for word in words), failed.message
        assert failed.message.count(body[:40]) <= 1, failed.message


@pytest.mark.parametrize("code", [429, 503])
async def test_an_error_in_a_200_that_may_pass_has_its_status(answering: Answering, code: int) -> None:
    body = json.dumps({"error": {"message": "busy", "code": code}}).encode()
    async with answering(body=body, kind="application/json") as rollout:
        answer = await rollout.ask("go", stream=True)
        assert (answer.status, "busy" in answer.text) == (code, True)


async def test_behind_an_answer_what_is_no_stream_may_pass(answering: Answering) -> None:
    async with answering({"content": "so"}) as rollout:
        await ask(rollout, stream=True)
        async with answering(body=b"<html>be right back</html>", kind="text/html"):
            answer = await rollout.ask("go on", stream=True)
        assert answer.status == 502
        assert "be right back" in answer.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("status", [429, 503, 500])
@pytest.mark.parametrize(
    "headers", [{"Retry-After": "7"}, {"retry-after-ms": "1500"}, {"Retry-After": "Wed, 21 Oct 2076 07:28:00 GMT"}, {}]
)
async def test_when_a_refused_call_may_come_again_is_told_to_the_agent(
    answering: Answering, stream: bool, status: int, headers: dict[str, str]
) -> None:
    body = b'{"error": {"message": "slow down"}}'
    async with answering(body=body, kind="application/json", status=status, headers=headers) as rollout:
        answer = await rollout.ask("go", stream=stream)
        assert (answer.status, "slow down" in answer.text) == (status, True)
        passed = {name: answer.headers[name] for name in ("Retry-After", "retry-after-ms") if name in answer.headers}
        assert passed == (headers if status != 500 else {})


SIGNED = {"google": {"thought_signature": "c2ln"}}


@pytest.mark.parametrize("stream", [True, False])
async def test_what_an_endpoint_wants_back_with_a_call_goes_to_the_agent_and_back(
    answering: Answering, stream: bool
) -> None:
    signed = [
        {
            "index": 0,
            "id": "x",
            "type": "function",
            "function": {"name": "bash", "arguments": A},
            "extra_content": SIGNED,
        },
        {"index": 1, "id": "y", "type": "function", "function": {"name": "bash", "arguments": B}},
    ]
    async with answering({"tool_calls": signed}, "tool_calls") as rollout:
        told = (await ask(rollout, stream=stream, tools=["bash"]))["message"]["tool_calls"]
        assert [one.get("extra_content") for one in told] == [SIGNED, None]
        # OpenCode gives them back for a provider of Google's only: ours comes back for any.
        echoed = echo(("x", "bash", A), ("y", "bash", B))
        await ask(rollout, [user("go"), echoed, result("x"), result("y")], stream=stream, tools=["bash"])
        sent = ASKED[-1]["messages"][1]["tool_calls"]
        assert [one.get("extra_content") for one in sent] == [SIGNED, None]
        assert rollout.main.num_branches == 1


PARTS = [{"type": "text", "text": "so"}, {"type": "text", "text": " it is"}]
THOUGHT = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}


@pytest.mark.parametrize("stream", [True, False])
async def test_content_in_parts_is_its_text_and_its_thought(answering: Answering, stream: bool) -> None:
    message = {"content": [THOUGHT, *PARTS]}
    async with answering(
        message, deltas=[{"content": [THOUGHT]}, {"content": PARTS}, {"content": "."}][: 2 + stream]
    ) as rollout:
        told = (await ask(rollout, stream=stream))["message"]
        assert told["content"] == last(rollout.main).content == "so it is" + "." * stream
        assert told["reasoning_content"] == last(rollout.main).reasoning_content == "hm"


async def test_arguments_that_are_an_object_are_its_text(answering: Answering) -> None:
    function = {"name": "bash", "arguments": {"command": "ls"}}
    async with answering({"tool_calls": [{"id": None, "function": function}]}, "tool_calls") as rollout:
        (told,) = (await ask(rollout, stream=False, tools=["bash"]))["message"]["tool_calls"]
        heard = last(rollout.main).tool_calls
        assert heard is not None
        assert told["function"]["arguments"] == heard[0].arguments == '{"command":"ls"}'


async def test_an_endpoint_need_not_stream_where_it_is_asked_for_whole_answers(answering: Answering) -> None:
    function = {"name": "bash", "arguments": A}
    said = {"content": "so", "tool_calls": [{"id": "x", "type": "function", "function": function}]}
    async with answering(said, "tool_calls", whole_asked=True) as rollout:
        choice = await ask(rollout, stream=True, tools=["bash"])
        assert (choice["message"]["content"], choice["finish_reason"]) == ("so", "tool_calls")
        assert [one["index"] for one in choice["message"]["tool_calls"]] == [0]
        assert [sorted({"stream", "stream_options"} & set(one)) for one in ASKED] == [[]]
        assert [one.finish_reason for one in rollout.main.calls] == ["tool_calls"]
    async with answering(body=b"<html>no</html>", kind="text/html", whole_asked=True) as rollout:
        assert (await rollout.ask("go", stream=True)).text == NOT_AGAIN
        failed = rollout.main.calls[0].error
        assert failed is not None
        assert "text/html: <html>no</html>" in failed.message
