"""Partial answers that an agent kept are dropped from its history; nothing that was asked is taken for one."""

from collections.abc import Sequence
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ToolCall
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.harnesses.null import NullHarnessConfig

from tests.history.asking import OPENCODE, Replies, Wire, ask, echo, result, sent, user
from tests.rlm.role_server import SUB, Rollout, role_server

NONE = NullHarnessConfig(id="null")
KEY = {"Idempotency-Key": "step"}
GO = user("go")


def said(text: str, *ids: str) -> Wire:
    return echo(*((one, "bash", "{}") for one in ids), content=text)


def reply(message: Wire) -> Reply:
    """The answer that comes back as this."""
    calls = [ToolCall(name="bash", arguments="{}", id=call["id"]) for call in message.get("tool_calls", ())]
    return Reply(text=message["content"], tool_calls=tuple(calls))


def shown(messages: Sequence[Wire]) -> list[Wire]:
    """Messages without what every answer of an agent has."""
    return [{key: one[key] for key in ("role", "content", "tool_calls") if key in one} for one in messages]


def heard(rollout: Rollout) -> list[Wire]:
    """The same of the newest request that the model got."""
    return shown(sent(rollout))


async def deliver(rollout: Rollout, messages: Sequence[Wire], times: int = 2) -> None:
    """Ask for one answer as often as its deliveries break, and once more."""
    key = {"Idempotency-Key": f"step {len(rollout.main.calls)}"}
    for _ in range(times):
        await ask(rollout, messages, **key)


A, B = said("", "a"), said("so", "b")

PARTIAL: dict[str, tuple[Wire, list[Wire]]] = {
    "the whole answer, whose tool was stopped": (A, [A, result("a", "cut off")]),
    "the whole answer": (A, [A]),
    "the same result": (A, [A, result("a")]),
    "twice": (A, [A, result("a", "cut off"), A, result("a", "cut off again")]),
    "some of its calls": (said("", "a", "b"), [A, result("a")]),
    "its text, piece by piece": (B, [said("s"), said("so")]),
    "nothing": (B, [said("")]),
}


@pytest.mark.parametrize("name", PARTIAL)
@pytest.mark.parametrize("headers", [{}, SUB])
async def test_parts_of_an_answer_that_was_asked_for_again_are_dropped(
    rollout: Rollout, name: str, headers: dict[str, str]
) -> None:
    answer, partial = PARTIAL[name]
    results = [result(call["id"]) for call in answer["tool_calls"]]
    rollout.model.policy = Replies(reply(answer))
    for _ in range(2):
        await ask(rollout, [GO], **KEY, **headers)
    turns = [GO, *partial, answer, *results]
    for _ in range(2):
        await ask(rollout, turns, **headers)
        assert heard(rollout) == shown([GO, answer, *results])
        turns += [said("Done."), user("go on")]
        results = [*results, said("Done."), user("go on")]
    trace = rollout.sub if headers else rollout.main
    assert (trace.num_turns, trace.num_branches) == (3, 1)
    assert rollout.main.info["gateway"]["ghosts"] == len({str(one) for one in partial if one["role"] != "tool"})


async def test_a_partial_answer_behind_turns_that_say_the_same_is_found_where_it_stands(rollout: Rollout) -> None:
    rollout.model.policy = Replies(*[reply(A)] * 3)
    turns = [GO, A, result("a")]
    await deliver(rollout, [GO])
    await deliver(rollout, turns)
    await deliver(rollout, [*turns, A, result("a", "cut off"), A, result("a", "other")], 1)
    assert heard(rollout) == shown([GO, A, result("a"), A, result("a", "other")])
    assert (rollout.main.num_turns, rollout.main.num_branches) == (3, 1)


ROSES, RED = said("Roses"), said("Roses are red")
LONGER = [GO, ROSES, RED, user("on")]
ONE = said("", "call_0")
PROMPTS: dict[str, list[Wire]] = {
    "turns with one id": [GO, ONE, result("call_0"), ONE, result("call_0"), user("now you")],
    "a text and a longer one": [GO, ROSES, RED, user("now you")],
    "an empty answer": [GO, said(""), said("x"), user("now you")],
    "the same text": [GO, RED, RED, user("now you")],
}


@pytest.mark.parametrize("prompt", PROMPTS)
@pytest.mark.parametrize("harness", [OPENCODE, NONE], ids=["with rules", "without"])
@pytest.mark.parametrize("session", ["ses_1", None])
async def test_what_was_never_said_here_stays_in_the_prompt(
    prompt: str, harness: HarnessConfig, session: str | None
) -> None:
    messages = PROMPTS[prompt]
    async with role_server() as server, server.rollout(harness=harness) as rollout:
        for _ in range(2):
            await ask(rollout, messages, session, **KEY)
            assert heard(rollout) == shown(messages)
        messages = [*messages, said("Done."), user("and now")]
        await ask(rollout, messages, session)
        assert heard(rollout) == shown(messages)
        assert "ghosts" not in rollout.main.info.get("gateway", {})


@pytest.mark.parametrize("prompt", PROMPTS)
async def test_an_agent_that_says_nothing_of_its_echo_is_taken_at_its_word(prompt: str) -> None:
    """Also where its own model said the later of two messages, and was asked twice."""
    messages = PROMPTS[prompt]
    async with role_server() as server, server.rollout(harness=NONE) as rollout:
        rollout.model.policy = Replies(reply(messages[2] if messages[2]["role"] == "assistant" else messages[3]))
        for _ in range(2):
            await ask(rollout, [GO], **KEY)
        await ask(rollout, messages)
        assert heard(rollout) == shown(messages)


async def test_an_answer_that_was_asked_for_once_has_no_parts(rollout: Rollout) -> None:
    rollout.model.policy = Replies(reply(RED))
    await ask(rollout, [GO], **KEY)
    await ask(rollout, LONGER)
    assert heard(rollout) == shown(LONGER)


@pytest.mark.parametrize("again", ["ses_1", "ses_2", None])
async def test_an_answer_of_another_conversation_has_no_parts_here(rollout: Rollout, again: str | None) -> None:
    """Both conversations heard the same answer; only one of them, or a third, was asked for it again."""
    rollout.model.policy = Replies(*[reply(RED)] * 3)
    for session in ("ses_1", "ses_2", again):
        await ask(rollout, [GO], session)
    await ask(rollout, LONGER, "ses_1")
    assert heard(rollout) == shown([GO, RED, user("on")] if again == "ses_1" else LONGER)


async def test_turns_that_say_the_same_are_no_partial_answers_of_one_another_though_one_came_again(
    rollout: Rollout,
) -> None:
    rollout.model.policy = Replies(*[reply(ONE)] * 3)
    turns = [GO]
    for _ in range(3):
        await deliver(rollout, turns)
        turns += [ONE, result("call_0")]
    cleared: list[Any] = [GO, ONE, result("call_0", "[cleared]"), *turns[3:]]
    for messages in (turns, cleared):
        await ask(rollout, messages)
        assert heard(rollout) == shown(messages)


async def test_two_answers_to_one_request_may_stand_behind_one_another(rollout: Rollout) -> None:
    rollout.model.policy = Replies(reply(ROSES), reply(RED))
    for _ in range(2):
        await ask(rollout, [GO])
    await ask(rollout, LONGER)
    assert heard(rollout) == shown(LONGER)


async def test_a_half_of_an_answer_at_the_agents_step_limit_is_dropped_and_the_agents_words_stay(
    rollout: Rollout,
) -> None:
    words = said("CRITICAL - MAXIMUM STEPS REACHED\n\nStop.")
    rollout.model.policy = Replies(reply(RED))
    await deliver(rollout, [GO, words])
    await ask(rollout, [GO, ROSES, RED, user("on")])
    assert heard(rollout) == shown([GO, words, RED, user("on")])
    assert (rollout.main.num_turns, rollout.main.num_branches) == (2, 1)
