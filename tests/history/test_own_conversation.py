"""A history is restored from its own conversation: what was said elsewhere never gets into it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from opencode_env.cli_agent.interception import MARK_HEADER
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.scripted_model import Reply
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage, UserMessage

from tests.history.asking import ECHOED, OPENCODE, SPOKEN, Replies, Wire, ask, echo, result, sent, spoken, user
from tests.rlm.role_server import SUB, Rollout, role_server

GO, ON = user("go"), user("on")
WORDS: Wire = {"role": "assistant", "content": "CRITICAL - MAXIMUM STEPS REACHED\n\nStop."}

ELSEWHERE: dict[str, tuple[Reply, list[Wire], list[Wire]]] = {
    "an empty answer": (Reply(), [GO], [GO, ON]),
    "an empty answer behind words of the agent": (Reply(), [GO, WORDS], [GO, ON]),
    "an answer behind words of the agent": (Reply(text="So."), [GO, WORDS], [GO, echo(content="So."), ON]),
    "an answer": (spoken(), [GO], [GO, echo(("c", "bash", ECHOED)), result("c")]),
}
"""What another conversation's model says, to which request, and what this one asks."""


@pytest.mark.parametrize("case", ELSEWHERE)
@pytest.mark.parametrize("own", [False, True], ids=["first", "later"])
@pytest.mark.parametrize("other", ["ses_1", None])
async def test_nothing_is_restored_from_another_conversation(
    rollout: Rollout, case: str, own: bool, other: str | None
) -> None:
    answer, asked, messages = ELSEWHERE[case]
    rollout.model.policy = Replies(answer, *[Reply(text="Mine.")] * own)
    await ask(rollout, asked, other, **SUB)
    if own:
        await ask(rollout, [GO], "ses_2", **SUB)
    before = len(rollout.sub.nodes)
    await ask(rollout, messages, "ses_2", **SUB)
    assert sent(rollout) == messages
    path = next(branch for branch in rollout.sub.branches if branch.nodes[-1] is rollout.sub.nodes[-1])
    assert [node.message.role for node in path.nodes] == [*(one["role"] for one in messages), "assistant"]
    assert len(rollout.sub.nodes) > before
    # What was said with the same characters may be one node; nobody was told anything that it did not say.
    calls = [call.arguments for node in path.nodes for call in getattr(node.message, "tool_calls", None) or ()]
    assert SPOKEN not in calls


@pytest.mark.parametrize("case", ELSEWHERE)
async def test_each_of_two_conversations_goes_on_behind_its_own(rollout: Rollout, case: str) -> None:
    answer, asked, messages = ELSEWHERE[case]
    rollout.model.policy = Replies(answer, answer)
    for turn in (asked, messages):
        for session in ("ses_1", "ses_2"):
            await ask(rollout, turn, session, **SUB)
    assert (rollout.sub.num_turns, rollout.sub.num_branches) == (4, 2)
    assert "history" not in rollout.sub.info


async def test_what_a_conversation_took_over_by_its_characters_is_its_own_from_then_on(rollout: Rollout) -> None:
    """Its messages behind it are found, though the answer was given to another."""
    rollout.model.policy = Replies(Reply(text="Said."), spoken(), spoken("d"))
    await ask(rollout, [GO], "ses_1")
    turns = [GO, echo(content="Said."), ON]
    await ask(rollout, turns, "ses_2")
    await ask(rollout, [*turns, echo(("c", "bash", ECHOED)), result("c")], "ses_2")
    assert rollout.main.num_branches == 1
    assert sent(rollout)[3]["tool_calls"][0]["function"]["arguments"] == SPOKEN


async def test_what_a_trace_began_with_is_every_conversations_own() -> None:
    answer = MessageNode(parent=0, message=AssistantMessage(content=None), sampled=True)
    kept = [MessageNode(message=UserMessage(content="go")), answer]
    async with (
        role_server() as server,
        server.rollout(harness=OPENCODE, begun=lambda it: it.main.nodes.extend(kept)) as rollout,
    ):
        for session in ("ses_1", "ses_2"):
            await ask(rollout, [GO, user(f"on, {session}")], session)
        assert [node.parent for node in rollout.main.nodes] == [None, 0, 1, 2, 1, 4]


@contextmanager
def marking(rollout: Rollout) -> Iterator[dict[str, str]]:
    """The header of the agent's own calls."""
    yield {MARK_HEADER: f"{rollout_of(rollout.main).program.new_run()}:own"}
    rollout_of(rollout.main).program.forget()


PROMPTS: list[list[Wire]] = [
    [GO, echo(("c", "bash", ECHOED)), result("c"), echo(("c", "bash", ECHOED)), result("c")],
    [GO, echo(content="Roses"), echo(content="Roses are red"), ON],
    [GO, ON],
    [GO, echo(("", "no tool", "{bad")), result("")],
]


@pytest.mark.parametrize("server", [False], indirect=True)
@pytest.mark.parametrize("session", ["ses_1", "ses_2", None])
@pytest.mark.parametrize("headers", [{}, SUB])
async def test_what_an_agents_programs_ask_is_read_as_it_came_and_forks_nothing(
    rollout: Rollout, session: str | None, headers: dict[str, str]
) -> None:
    with marking(rollout) as mark:
        rollout.model.policy = Replies(spoken())
        turns = [GO]
        await ask(rollout, turns, **mark, **headers)
        for number, messages in enumerate(PROMPTS * 3):
            asked = [*messages[:-1], {**messages[-1], "content": f"{number // 2}"}]
            await ask(rollout, asked, session, **headers)
            assert sent(rollout)[:-1] == messages[:-1]
        turns += [echo(("c", "bash", ECHOED)), result("c")]
        await ask(rollout, turns, **mark, **headers)
        assert "history" not in {**rollout.main.info, **rollout.sub.info}
        assert "ghosts" not in rollout.main.info.get("gateway", {})
        assert sent(rollout)[1]["tool_calls"][0]["function"]["arguments"] == SPOKEN


async def test_an_agents_own_conversation_takes_nothing_over_from_its_programs(rollout: Rollout) -> None:
    with marking(rollout) as mark:
        rollout.model.policy = Replies(Reply(text="Mine."), Reply())
        await ask(rollout, [user("first")], **mark)
        await ask(rollout, [GO])
        await ask(rollout, [GO, ON], **mark)
        assert sent(rollout) == [GO, ON]
        last = next(one for one in rollout.main.branches if one.nodes[-1] is rollout.main.nodes[-1])
        assert [node.message.role for node in last.nodes] == ["user", "user", "assistant"]
