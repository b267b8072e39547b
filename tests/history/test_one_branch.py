"""Whatever the model says, one linear rollout is one branch: the real binary, a strict model, generated answers.

`ECHO_CONVERSATIONS=2000` plays that many generated conversations instead of a few dozen.
"""

import asyncio
import os
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from opencode_env.scripted_model import Reply, ToolCall
from verifiers.v1.types import AssistantMessage

from tests.history.outputs import Conversation, conversations, segment, words
from tests.history.segments import DONE, Talk, talk

pytestmark = pytest.mark.opencode

WANTED = os.environ.get("ECHO_CONVERSATIONS")
GENERATED = settings(
    max_examples=int(WANTED or 20),
    deadline=None,
    database=None,
    derandomize=WANTED is None,
    phases=[Phase.explicit, Phase.generate, Phase.shrink] if WANTED else [Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
FINE = '{ "command": "echo fine", "description" : "d" }'


def bash(arguments: str, **fields: Any) -> ToolCall:
    return ToolCall(**{"name": "bash", "arguments": arguments, **fields})


def says(*calls: ToolCall, **fields: Any) -> Reply:
    return Reply(tool_calls=calls, **fields)


def assert_sampled(message: AssistantMessage, reply: Reply) -> None:
    """The trace holds what the model said, character for character."""
    assert (message.content or "") == reply.text
    assert (message.reasoning_content or "") == reply.reasoning
    calls = message.tool_calls or []
    assert [(call.name, call.arguments) for call in calls] == [
        (call.name, call.arguments_json) for call in reply.tool_calls
    ]


def assert_one_branch(played: Talk) -> None:
    """One branch of what was sampled, which a strict provider takes at every turn."""
    trace = played.main
    assert trace.ok, trace.errors
    assert played.refused == [], played.refused[0].body["messages"]
    assert trace.info.get("history") is None
    assert (trace.num_branches, trace.metrics["history_forks"]) == (1, 0)
    assert len(played.answers) == len(played.said)
    for message, reply in zip(played.answers, played.said, strict=True):
        assert_sampled(message, reply)


def play(conversation: Conversation) -> None:
    said = conversation.with_words()
    played = asyncio.run(talk(*said.segments, pieces=said.pieces))
    assert_one_branch(played)
    results = "\n".join(played.results)
    assert [word for word in words(played.said) if word not in results] == []


@GENERATED
@given(conversations)
def test_generated_answers_stay_one_branch_and_the_tools_do_what_they_mean(conversation: Conversation) -> None:
    play(conversation)


ROWS: dict[str, list[Reply]] = {
    "spelling": [says(bash('{ "description" : "d",\n"command":"echo \\u0061\\/", "2": 1, "1": 2, "2": 3 }'))],
    "numbers": [
        says(bash('{"command":"echo a","description":"d","timeout":5000.0}')),
        says(bash('{"command":"echo a","description":"d","x":1e400,"y":-0,"z":12345678901234567890}')),
    ],
    "no object": [says(bash(text)) for text in ("", " ", "null", "[1]", '"x"', "5")],
    "broken": [
        *(
            says(bash(text))
            for text in ("{", '{"command": NaN}', '{"command":"a\nb"}', '{"__proto__":{},"command":"a"}')
        ),
        says(bash('{"command": "ec'), finish_reason="length"),
    ],
    "names": [says(bash(FINE, name=name)) for name in ("nothing", " bash ", "Bash", "invalid")],
    "names of broken calls": [says(bash("{bad", name=name)) for name in ("Bash", "invalid", "nothing")],
    "names of forbidden keys": [says(bash('{"a": {"constructor": {"prototype": 1}}}', name="Bash"))],
    "one id": [says(bash(FINE, id="x"), bash('{"command":"echo other","description":"d"}', id="x"))],
    "more than JSON": [says(bash(text)) for text in ("{}}", "599", FINE + FINE)],
    "three of one id": [says(bash(FINE, id="x"), bash('{ "comm', id="x"), bash(FINE, id="x"), arrivals=(0, 2, 1))],
    "no id": [says(bash(FINE, id=""))],
    "arrivals": [says(bash(FINE, id="x"), bash(FINE, id="y"), arrivals=(1, 0))],
    "reasoning": [
        says(bash(FINE), reasoning="hm", reasoning_key="reasoning"),
        says(bash(FINE), reasoning="hm", text="so"),
    ],
    "half a character": [says(bash('{"command":"echo \\ud83d","description":"d"}'))],
    "deep": [says(bash('{"command":"echo a","description":"d","x":' + "[" * 300 + "]" * 300 + "}"))],
}
"""One conversation each of what generated answers are made of, and what they brought to light."""


@pytest.mark.parametrize("rows", [[name] for name in ROWS] if WANTED else [list(ROWS)], ids=" ".join)
async def test_odd_answers_stay_in_one_branch(rows: list[str]) -> None:
    assert_one_branch(await talk([*(reply for name in rows for reply in ROWS[name]), DONE]))


async def test_an_answer_that_says_nothing_stays_when_the_user_goes_on() -> None:
    nothing = Reply()
    played = await talk([says(bash(FINE)), nothing], [nothing], [Reply(reasoning="hm")], [says(bash(FINE)), DONE])
    assert_one_branch(played)


async def test_the_order_to_stop_at_the_step_limit_stays_where_the_model_read_it() -> None:
    steps = {"agent": {"build": {"steps": 2}}}
    turns = [says(bash(FINE))] * 3
    played = await talk([*turns, Reply()], [*turns, DONE], [DONE], opencode_config=steps)
    assert_one_branch(played)
    orders = [node.message for node in played.main.nodes if "MAXIMUM STEPS" in str(node.message.content)]
    assert len(orders) == 6


@pytest.mark.parametrize("family", ["mistral-large", "claude-opus"])
async def test_ids_that_opencode_rewrites_for_a_family_of_models_stay_the_sampled_ones(family: str) -> None:
    two = says(bash(FINE, id="call_abcdefg:1"), bash(FINE, id="call_abcdefg:2"))
    played = await talk([two, says(bash(FINE, id="call_abcdefg:3")), DONE], [two, DONE], prompt_model=family)
    assert_one_branch(played)
    results = [node.message.tool_call_id for node in played.main.nodes if node.message.role == "tool"]
    assert results == [f"call_abcdefg:{number}" for number in (1, 2, 3, 1, 2)]
    assert [one["tool_call_id"] for one in played.requests[-1].body["messages"] if one["role"] == "tool"] == results


async def test_the_system_prompt_of_a_session_is_the_one_it_began_with() -> None:
    """The agent writes instructions and a skill where OpenCode looks for them, and makes a repository."""
    write = (
        "cd $XDG_CONFIG_HOME/opencode && echo NEW >AGENTS.md && mkdir -p skills/x && "
        "printf -- '---\\nname: x\\ndescription: d\\n---\\nhi' >skills/x/SKILL.md; cd /app; git init -q ."
    )
    calls = [says(ToolCall(name="bash", arguments={"command": write, "description": "d"})), says(bash(FINE))]
    played = await talk([*calls, DONE], [says(bash(FINE)), DONE])
    assert_one_branch(played)


def agent(prompt: str) -> ToolCall:
    """A call that starts a sub-agent."""
    arguments = {"description": "a job", "prompt": prompt, "subagent_type": "general"}
    return ToolCall(name="task", arguments=arguments)


async def test_two_sub_agents_with_the_same_texts_are_two_conversations() -> None:
    lines = [says(bash('{"command":"echo a","description":"d","timeout":5000.0}')), says(bash("{")), DONE]
    played = await talk([says(agent("the job"), agent("the job")), DONE], sub={"the job": lines})
    assert_one_branch(played)
    assert (played.sub.num_branches, played.sub.num_turns) == (2, 6)
    assert played.main.metrics["sub_llm_history_forks"] == 0


@GENERATED
@given(st.lists(segment(8), min_size=1, max_size=3), st.sampled_from([64, 3]), segment(4))
def test_generated_answers_of_sub_agents_stay_one_branch_each(jobs: Any, pieces: int, own: Any) -> None:
    names = {f"job {number}": Conversation((job,), 1).with_words().segments[0] for number, job in enumerate(jobs)}
    starts = says(*(agent(name) for name in names))
    played = asyncio.run(talk((starts, *own), sub=names, pieces=pieces))
    assert_one_branch(played)
    assert played.main.metrics["sub_llm_history_forks"] == 0, played.sub.info
    assert played.sub.num_branches == len(names)
    meant = {tuple(call.arguments_json for call in one.tool_calls) for job in names.values() for one in job}
    for message in played.sub.assistant_messages:
        assert tuple(call.arguments for call in message.tool_calls or ()) in {*meant, ()}
