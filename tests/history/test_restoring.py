"""The history of a request as the server reads it: restored where it is an echo, forked where it really changed."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from opencode_env.opencode import OpenCodeHarnessConfig
from opencode_env.scripted_model import Reply, ToolCall
from opencode_env.scripted_model.request import ChatRequest
from verifiers.v1.types import Request

from tests.rlm.role_server import SUB, RoleServer, Rollout, role_server

Wire = dict[str, Any]
OPENCODE = OpenCodeHarnessConfig(id="opencode-env")
SYSTEM = {"role": "system", "content": "You are an agent."}
SPOKEN = '{ "command": "ls", "timeout": 5000.0 }'
ECHOED = '{"command":"ls","timeout":5000}'


def user(text: str) -> Wire:
    return {"role": "user", "content": text}


def result(identity: str, text: str = "done") -> Wire:
    return {"role": "tool", "tool_call_id": identity, "content": text}


def echo(*calls: tuple[str, str, str], content: str = "") -> Wire:
    made: Wire = {"role": "assistant", "content": content, "reasoning_content": ""}
    functions = [(identity, {"name": name, "arguments": arguments}) for identity, name, arguments in calls]
    if calls:
        made["tool_calls"] = [{"id": own, "type": "function", "function": function} for own, function in functions]
    return made


def spoken(identity: str = "c", arguments: str = SPOKEN, name: str = "bash") -> Reply:
    return Reply(tool_calls=(ToolCall(name=name, arguments=arguments, id=identity),))


class Replies:
    """A policy that gives one reply after the other, whatever it is asked."""

    def __init__(self, *replies: Reply) -> None:
        self._left = list(replies)

    def __call__(self, request: ChatRequest, /) -> Reply:
        return self._left.pop(0) if self._left else Reply(text="Done.")


async def ask(rollout: Rollout, messages: Sequence[Wire], session: str | None = "ses_1", **headers: str) -> None:
    """One call of a conversation, which must be answered."""
    named = {"x-session-id": session} if session else {}
    answer = await rollout.ask(list(messages), {**named, **headers}, stream=True)
    assert answer.status == 200, answer.body


def sent(server: RoleServer) -> list[Wire]:
    """The messages of the newest request that reached the model."""
    found: list[Wire] = server.model.requests[-1].body["messages"]
    return found


async def test_another_spelling_reaches_trace_and_endpoint_as_it_was_sampled() -> None:
    async with role_server(strict=True) as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = Replies(spoken(), spoken("d"))
        turns = [SYSTEM, user("go")]
        await ask(rollout, turns)
        turns += [echo(("c", "bash", ECHOED)), result("c")]
        await ask(rollout, turns)
        turns += [echo(("d", "bash", ECHOED)), result("d")]
        await ask(rollout, turns)
        assert rollout.main.num_branches == 1
        calls = [call.arguments for message in rollout.main.assistant_messages for call in message.tool_calls or ()]
        assert calls == [SPOKEN, SPOKEN]
        on_wire = [call["function"]["arguments"] for message in sent(server) for call in message.get("tool_calls", ())]
        assert on_wire == [SPOKEN, SPOKEN]
        assert [node.message.name for node in rollout.main.nodes if node.message.role == "tool"] == ["bash", "bash"]


async def test_what_is_no_chat_protocol_stays_in_the_trace_only() -> None:
    refusal = json.dumps({"tool": "ba sh", "error": "no such tool"})
    async with role_server(strict=True) as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = Replies(spoken(name="ba sh", arguments="{bad"), Reply())
        turns = [user("go")]
        await ask(rollout, turns)
        turns += [echo(("c", "invalid", refusal)), result("c")]
        await ask(rollout, turns)
        turns += [user("go on")]
        await ask(rollout, turns)
        assert rollout.main.num_branches == 1
        said = [(message.content, message.tool_calls) for message in rollout.main.assistant_messages]
        assert said[0][1] is not None
        assert (said[0][1][0].name, said[0][1][0].arguments) == ("ba sh", "{bad")
        assert [message["role"] for message in sent(server)] == ["user", "assistant", "tool", "user"]
        assert sent(server)[1]["tool_calls"][0]["function"] == {"name": "invalid", "arguments": refusal}
        assert [message.role for message in rollout.main.messages].count("assistant") == 3


CHANGES: dict[str, tuple[int, Wire, str]] = {
    "system prompt": (0, {"role": "system", "content": "You are another agent."}, "content: 'You are another"),
    "what the user said": (1, user("stop"), "content: 'stop' stands where 'go' stood"),
    "the answer's arguments": (2, echo(("c", "bash", '{"command":"rm","timeout":5000}')), "tool_calls: "),
    "the answer's text": (2, echo(("c", "bash", ECHOED), content="Yes."), "content: 'Yes.' stands where '' stood"),
    "a result": (3, result("c", "failed"), "content: 'failed' stands where 'done' stood"),
    "another message": (3, user("Stop."), "a message of role user stands where one of role tool stood"),
}


@pytest.mark.parametrize("change", CHANGES)
async def test_a_real_change_of_the_history_forks_and_is_named(change: str) -> None:
    position, changed, how = CHANGES[change]
    async with role_server() as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = Replies(spoken(), spoken("d"))
        turns = [SYSTEM, user("go")]
        await ask(rollout, turns)
        turns += [echo(("c", "bash", ECHOED)), result("c")]
        await ask(rollout, turns)
        turns += [echo(("d", "bash", ECHOED)), result("d")]
        turns[position] = changed
        await ask(rollout, turns)
        assert rollout.main.num_branches == 2
        record = rollout.main.info["history"]
        (fork,) = record["first"]
        assert record["forks"] == 1
        assert (fork["conversation"], fork["message"]) == ("ses_1", position + 1)
        assert fork["turn"] == 1 + (position > 2)
        assert how in fork["how"]


async def test_the_same_question_again_is_a_second_turn_and_a_fork() -> None:
    async with role_server() as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = Replies(Reply(finish_reason="tool_calls"), spoken())
        await ask(rollout, [user("go")])
        await ask(rollout, [user("go")])
        await ask(rollout, [user("go"), echo(("c", "bash", ECHOED)), result("c")])
        assert (rollout.main.num_turns, rollout.main.num_branches) == (3, 2)
        assert rollout.main.info["history"]["first"][0]["how"] == "the same request was answered again"


@pytest.mark.parametrize(("sessions", "branches"), [(("ses_1", "ses_2"), 2), ((None, None), 3)])
async def test_conversations_with_the_same_texts_are_told_apart_by_their_session(
    sessions: tuple[str | None, str | None], branches: int
) -> None:
    async with role_server() as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = lambda request: spoken(f"c{request.turn}")
        turns = [SYSTEM, user("go")]
        for number in range(3):
            for session in sessions:
                await ask(rollout, turns, session, **SUB)
            turns += [echo((f"c{number}", "bash", ECHOED)), result(f"c{number}")]
        assert rollout.sub.num_turns == 6
        assert rollout.sub.num_branches >= branches
        assert (rollout.sub.num_branches == 2) == (sessions[0] is not None)
    forks = rollout.main.metrics["sub_llm_history_forks"]
    assert forks == 0


async def test_calls_without_a_session_are_no_forks() -> None:
    async with role_server() as server, server.rollout(harness=OPENCODE) as rollout:
        for number in range(3):
            await ask(rollout, [user(f"call {number}")], None)
        assert rollout.main.num_branches == 3
        assert "history" not in rollout.main.info


async def test_an_agent_that_says_nothing_of_its_echo_is_taken_at_its_word() -> None:
    async with role_server() as server, server.rollout() as rollout:
        server.model.policy = Replies(spoken())
        await ask(rollout, [user("go")])
        await ask(rollout, [user("go"), echo(("c", "bash", ECHOED)), result("c")])
        assert rollout.main.num_branches == 2
        assert "history" not in rollout.main.info


@pytest.mark.parametrize(
    "broken",
    [
        {"tool_calls": [{"id": "c"}]},
        {"tool_calls": [{"id": ["c"], "function": {"name": 1, "arguments": 2}}]},
        {"tool_calls": "c"},
        {"tool_calls": [1]},
        {"content": {"a": 1}},
        {"reasoning_content": 1},
        {"content": [1, {"type": "text", "text": "x"}]},
    ],
)
async def test_a_malformed_echo_is_no_failure_of_the_server(broken: Wire) -> None:
    async with role_server() as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = Replies(spoken())
        await ask(rollout, [user("go")])
        messages: list[Any] = [user("go"), {**echo(("c", "bash", ECHOED)), **broken}, result("c")]
        answer = await rollout.ask(messages, {"x-session-id": "ses_1"})
        assert answer.status in (200, 400), answer.body
        await ask(rollout, [user("go"), echo(("c", "bash", ECHOED)), result("c")])


async def test_a_hooks_new_words_reach_the_endpoint_behind_an_answer_that_it_never_sees() -> None:
    async with role_server(strict=True) as server, server.rollout(harness=OPENCODE) as rollout:
        server.model.policy = Replies(Reply())

        async def whisper(request: Request) -> Request:
            last = request.messages[-1].model_copy(update={"content": "rewritten"})
            return request.model_copy(update={"messages": [*request.messages[:-1], last]})

        await ask(rollout, [user("go")])
        rollout.session.request_interceptors = [whisper]
        await ask(rollout, [user("go"), user("on")])
        assert [message["content"] for message in sent(server)] == ["go", "rewritten"]
        assert rollout.main.num_branches == 1


async def test_turns_whose_calls_have_one_id_are_no_ghosts_of_one_another() -> None:
    async with role_server(strict=True) as server, server.rollout(harness=OPENCODE) as rollout:
        twice = Reply(tool_calls=(*spoken("x").tool_calls, *spoken("x").tool_calls))
        server.model.policy = Replies(twice, spoken("x"), spoken("call_abcdefg1"), spoken("call_abcdefg2"))
        turns = [user("go")]
        for echoed in ("x", "x", "callabcde", "callabcde"):
            await ask(rollout, turns)
            turns += [echo((echoed, "bash", ECHOED)), result(echoed)]
        await ask(rollout, turns)
        assert (rollout.main.num_turns, rollout.main.num_branches) == (5, 1)
