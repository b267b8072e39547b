"""The history of a request as the server reads it: restored where it is an echo, forked where it really changed."""

import json
from typing import Any

import pytest
from opencode_env.scripted_model import Reply
from verifiers.v1.types import Request

from tests.history.asking import ECHOED, OPENCODE, SPOKEN, SYSTEM, Replies, Wire, ask, echo, result, sent, spoken, user
from tests.rlm.role_server import SUB, Rollout, role_server


async def spoken_twice(rollout: Rollout, position: int | None = None, changed: Wire | None = None) -> None:
    """A conversation in which the model calls twice; in its last request one message may be another."""
    rollout.model.policy = Replies(spoken(), spoken("d"))
    turns = [SYSTEM, user("go")]
    await ask(rollout, turns)
    turns += [echo(("c", "bash", ECHOED)), result("c")]
    await ask(rollout, turns)
    turns += [echo(("d", "bash", ECHOED)), result("d")]
    if position is not None and changed is not None:
        turns[position] = changed
    await ask(rollout, turns)


async def test_another_spelling_reaches_trace_and_endpoint_as_it_was_sampled(rollout: Rollout) -> None:
    await spoken_twice(rollout)
    assert rollout.main.num_branches == 1
    calls = [call.arguments for message in rollout.main.assistant_messages for call in message.tool_calls or ()]
    on_wire = [call["function"]["arguments"] for message in sent(rollout) for call in message.get("tool_calls", ())]
    assert calls == on_wire == [SPOKEN, SPOKEN]
    assert [node.message.name for node in rollout.main.nodes if node.message.role == "tool"] == ["bash", "bash"]


async def test_what_is_no_chat_protocol_stays_in_the_trace_only(rollout: Rollout) -> None:
    refusal = json.dumps({"tool": "ba sh", "error": "no such tool"})
    rollout.model.policy = Replies(spoken(name="ba sh", arguments="{bad"), Reply())
    turns = [user("go")]
    await ask(rollout, turns)
    turns += [echo(("c", "invalid", refusal)), result("c")]
    await ask(rollout, turns)
    turns += [user("go on")]
    await ask(rollout, turns)
    assert rollout.main.num_branches == 1
    (called,) = rollout.main.assistant_messages[0].tool_calls or []
    assert (called.name, called.arguments) == ("ba sh", "{bad")
    assert [message["role"] for message in sent(rollout)] == ["user", "assistant", "tool", "user"]
    assert sent(rollout)[1]["tool_calls"][0]["function"] == {"name": "invalid", "arguments": refusal}
    assert [message.role for message in rollout.main.messages].count("assistant") == 3


CHANGES: dict[str, tuple[int, Wire, str]] = {
    "system prompt": (0, {"role": "system", "content": "You are another agent."}, "content: 'You are another"),
    "what the user said": (1, user("stop"), "content: 'stop' stands where 'go' stood"),
    "the answer's arguments": (2, echo(("c", "bash", '{"command":"rm","timeout":5000}')), "tool_calls: "),
    "the answer's text": (2, echo(("c", "bash", ECHOED), content="Yes."), "content: 'Yes.' stands where '' stood"),
    "a result": (3, result("c", "failed"), "content: 'failed' stands where 'done' stood"),
    "another message": (3, user("Stop."), "a message of role user stands where one of role tool stood"),
}


@pytest.mark.parametrize("server", [False], indirect=True)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_real_change_of_the_history_forks_and_is_named(rollout: Rollout, change: str) -> None:
    position, changed, how = CHANGES[change]
    await spoken_twice(rollout, position, changed)
    record = rollout.main.info["history"]
    (fork,) = record["first"]
    assert (rollout.main.num_branches, record["forks"]) == (2, 1)
    assert (fork["conversation"], fork["message"], fork["turn"]) == ("ses_1", position + 1, 1 + (position > 2))
    assert how in fork["how"]


async def test_the_same_question_again_is_a_second_turn_and_a_fork(rollout: Rollout) -> None:
    rollout.model.policy = Replies(Reply(finish_reason="tool_calls"), spoken())
    for further in ([], [], [echo(("c", "bash", ECHOED)), result("c")]):
        await ask(rollout, [user("go"), *further])
    assert (rollout.main.num_turns, rollout.main.num_branches) == (3, 2)
    assert rollout.main.info["history"]["first"][0]["how"] == "the same request was answered again"


@pytest.mark.parametrize(("sessions", "branches"), [(("ses_1", "ses_2"), 2), ((None, None), 3)])
async def test_conversations_with_the_same_texts_are_told_apart_by_their_session(
    sessions: tuple[str | None, str | None], branches: int
) -> None:
    async with role_server() as server, server.rollout(harness=OPENCODE) as rollout:
        rollout.model.policy = lambda request: spoken(f"c{request.turn}")
        turns = [SYSTEM, user("go")]
        for number in range(3):
            for session in sessions:
                await ask(rollout, turns, session, **SUB)
            turns += [echo((f"c{number}", "bash", ECHOED)), result(f"c{number}")]
        assert rollout.sub.num_turns == 6
        assert rollout.sub.num_branches >= branches
        assert (rollout.sub.num_branches == 2) == (sessions[0] is not None)
    assert rollout.main.metrics["sub_llm_history_forks"] == 0


async def test_calls_without_a_session_are_no_forks(rollout: Rollout) -> None:
    for number in range(3):
        await ask(rollout, [user(f"call {number}")], None)
    assert rollout.main.num_branches == 3
    assert "history" not in rollout.main.info


async def test_an_agent_that_says_nothing_of_its_echo_is_taken_at_its_word() -> None:
    async with role_server() as server, server.rollout() as rollout:
        rollout.model.policy = Replies(spoken())
        await ask(rollout, [user("go")])
        await ask(rollout, [user("go"), echo(("c", "bash", ECHOED)), result("c")])
        assert rollout.main.num_branches == 2
        assert "history" not in rollout.main.info


@pytest.mark.parametrize("server", [False], indirect=True)
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
async def test_a_malformed_echo_is_no_failure_of_the_server(rollout: Rollout, broken: Wire) -> None:
    rollout.model.policy = Replies(spoken())
    await ask(rollout, [user("go")])
    messages: list[Any] = [user("go"), {**echo(("c", "bash", ECHOED)), **broken}, result("c")]
    answer = await rollout.ask(messages, {"x-session-id": "ses_1"})
    assert answer.status in (200, 400), answer.body
    await ask(rollout, [user("go"), echo(("c", "bash", ECHOED)), result("c")])


async def test_a_hooks_new_words_reach_the_endpoint_behind_an_answer_that_it_never_sees(rollout: Rollout) -> None:
    rollout.model.policy = Replies(Reply())

    async def whisper(request: Request) -> Request:
        last = request.messages[-1].model_copy(update={"content": "rewritten"})
        return request.model_copy(update={"messages": [*request.messages[:-1], last]})

    await ask(rollout, [user("go")])
    rollout.session.request_interceptors = [whisper]
    await ask(rollout, [user("go"), user("on")])
    assert [message["content"] for message in sent(rollout)] == ["go", "rewritten"]
    assert rollout.main.num_branches == 1


@pytest.mark.parametrize("said", [[Reply()], [Reply(text="Done."), Reply()]], ids=["empty", "beside what was said"])
async def test_a_word_of_the_agents_own_stands_for_an_empty_answer_where_nobody_said_it(
    rollout: Rollout, said: list[Reply]
) -> None:
    word = {"role": "assistant", "content": "Done."}
    rollout.model.policy = Replies(*said, Reply(text="On."))
    for _ in said:
        await ask(rollout, [user("go")])
    await ask(rollout, [user("go"), word, user("on")])
    assert sent(rollout) == [user("go"), word, user("on")]
    path = next(branch for branch in rollout.main.branches if branch.nodes[-1] is rollout.main.nodes[-1])
    assert (path.nodes[1].sampled, path.nodes[1].message.content) == (True, said[0].text or None)
    assert rollout.main.num_branches == len(said)


async def test_turns_whose_calls_have_one_id_are_no_partial_answers_of_one_another(rollout: Rollout) -> None:
    twice = Reply(tool_calls=(*spoken("x").tool_calls, *spoken("x").tool_calls))
    rollout.model.policy = Replies(twice, spoken("x"), spoken("call_abcdefg1"), spoken("call_abcdefg2"))
    turns = [user("go")]
    for echoed in ("x", "x", "callabcde", "callabcde"):
        await ask(rollout, turns)
        turns += [echo((echoed, "bash", ECHOED)), result(echoed)]
    await ask(rollout, turns)
    assert (rollout.main.num_turns, rollout.main.num_branches) == (5, 1)


WORDS = "CRITICAL - MAXIMUM STEPS REACHED\n\nStop."


@pytest.mark.parametrize("answer", [Reply(text="So."), spoken(), Reply(), Reply(reasoning="hm"), Reply(text=WORDS)])
async def test_words_of_the_agent_at_its_step_limit_stay_before_the_answer_to_them(
    rollout: Rollout, answer: Reply
) -> None:
    words = {**echo(content=WORDS), "reasoning_content": ""}
    said = {**echo(content=answer.text), "reasoning_content": answer.reasoning}
    rollout.model.policy = Replies(answer, Reply(text="Done."), Reply())
    await ask(rollout, [user("go"), words])
    before = sent(rollout)
    assert before == [user("go"), words]
    if answer.tool_calls:
        turns = [user("go"), echo(("c", "bash", ECHOED)), result("c")]
    else:
        turns = [user("go"), *([] if answer == Reply() else [said]), user("on")]
    for messages in (turns, [*turns, echo(content="Done."), user("and on")]):
        await ask(rollout, messages)
        assert sent(rollout)[: len(before)] == before
        before = sent(rollout)
    assert (rollout.main.num_turns, rollout.main.num_branches) == (3, 1)


@pytest.mark.parametrize(
    ("first", "second"),
    [(None, "None"), (None, "null"), ([], "[]"), ("", "()"), (None, "(None,)"), (None, "('None',)")],
)
async def test_what_is_no_text_is_not_remembered_as_the_text_that_spells_it(
    rollout: Rollout, first: Any, second: str
) -> None:
    rollout.model.policy = Replies(spoken())
    await ask(rollout, [user("go")])
    for content in (first, second, first):
        answer = {**echo(("c", "bash", ECHOED)), "content": content}
        await ask(rollout, [user("go"), answer, result("c"), user("on")])
        assert rollout.main.branches[-1].messages[1].content == (content or None)
    assert rollout.main.num_branches == 3
