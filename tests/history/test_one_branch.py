"""Whatever the model says, one linear rollout is one branch: the real binary, a strict model, generated answers.

A few generated rollouts are played, which show every behaviour, with `WHOLE=1` a hundred, and with
`ECHO_CONVERSATIONS=2000` that many, others each time.
"""

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from opencode_env.cli_agent.interception import SubSettings
from opencode_env.scripted_model import Fault, FaultKind, Reply, ToolCall

from tests.history.behaviours import KINDS, OF_SUB_AGENTS, Played
from tests.history.one_branch import assert_conversations, assert_one_branch
from tests.history.outputs import Conversation, conversations, said_in
from tests.history.segments import DONE, talk
from tests.support.rollouts import assert_extends
from tests.support.sizes import size
from tests.support.sub_sessions import TASK

pytestmark = [
    pytest.mark.opencode,
    pytest.mark.filterwarnings("ignore:Generating overly large repr"),
    pytest.mark.usefixtures("sandboxes"),
]

WANTED = os.environ.get("ECHO_CONVERSATIONS")
AT_ONCE = 2
LONG, SHORT = (range(21), range(10)) if WANTED else (range(10, 18), range(4, 8))
"""Turns in a segment of a main agent and of a sub-agent; what is to be found and shrunk may have none."""
TURNS = 1000
"""That a sub-agent may take: more than any is given to say."""
PLAYED = Played()
SEED = 99 if WANTED is None else random.getrandbits(64)
"""With the odd answers below, the two conversations of the fixed one show every behaviour in 51 turns and 3 starts."""


def generated(groups: int) -> settings:
    """That many groups of conversations, always the same ones, or as many as are wanted, each time others."""
    number = groups if WANTED is None else max(1, int(WANTED) // AT_ONCE)
    phases = [Phase.explicit, Phase.generate, *[Phase.shrink] * bool(WANTED)]
    checks = list(HealthCheck)
    return settings(max_examples=number, deadline=None, database=None, phases=phases, suppress_health_check=checks)


FINE = '{ "command": "echo fine", "description" : "d" }'


def bash(arguments: str, **fields: Any) -> ToolCall:
    return ToolCall(**{"name": "bash", "arguments": arguments, **fields})


def says(*calls: ToolCall, **fields: Any) -> Reply:
    return Reply(tool_calls=calls, **fields)


def agent(prompt: str, **further: str) -> ToolCall:
    """A call that starts a sub-agent, or goes on with one."""
    arguments = {"description": "a job", "prompt": prompt, "subagent_type": "general", **further}
    return ToolCall(name="task", arguments=arguments)


def turns_of(conversation: Conversation) -> tuple[list[list[Reply]], dict[str, Sequence[Reply]]]:
    """What the main agent's model says in each segment, with the calls that start and resume the sub-agents, and what
    theirs say by a word of the prompt."""
    main = [list(one) for one in conversation.segments]
    names = {f"job {number}": said_in(job) for number, job in enumerate(conversation.jobs)}
    resumed = [
        says(agent(f"{name}, go on", task_id=TASK.format(number)))
        for number, name in enumerate(names)
        for _ in conversation.jobs[number][1:]
    ]
    main[-1] = [*resumed, *main[-1]]
    if names:
        main[0] = [says(*(agent(name) for name in names)), *main[0]]
    return main, names


async def play(conversation: Conversation) -> None:
    """Play one conversation, and count it."""
    said = conversation.with_words()
    main, sub = turns_of(said)
    bounds = SubSettings(max_turns=TURNS)
    played = await talk(*main, sub=sub or None, pieces=said.pieces, settings=bounds)
    assert_conversations(played)
    PLAYED.add(conversation, len(played.requests))


def play_at_once(group: Sequence[Conversation]) -> None:
    async def all_of_them() -> None:
        await asyncio.gather(*map(play, group))

    asyncio.run(all_of_them())


def groups() -> st.SearchStrategy[list[Conversation]]:
    """As many as are played at once; a counterexample shrinks to one, and equal ones show nothing new."""
    group = st.lists(conversations(LONG, SHORT), min_size=1 if WANTED else AT_ONCE, max_size=AT_ONCE)
    return group if WANTED else group.filter(lambda found: found[0] != found[1])


@pytest.fixture(scope="module", autouse=True)
def _report() -> Iterator[None]:
    yield
    print(f"\n{PLAYED}")  # seen with -s


@seed(SEED)
@generated(size(1, 50))
@given(groups())
def test_generated_answers_stay_one_branch_and_the_tools_do_what_they_mean(group: list[Conversation]) -> None:
    play_at_once(group)


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
    "a lone surrogate": [says(bash('{"command":"echo \\ud83d","description":"d"}'))],
    "deep": [says(bash('{"command":"echo a","description":"d","x":' + "[" * 300 + "]" * 300 + "}"))],
    "too deep": [says(bash('{"x": ' + "[ " * 3000 + "]" * 3000 + "}"), text="so"), says(bash("[" * 20_000))],
    "one id, two tools": [
        says(
            ToolCall(name="Tell", arguments="{ }", id="x"),
            bash(f'{{ "command":"{command}","description":"d"}}', id="x"),
        )
        for command in ("true", "sleep 0.1", "seq 1 30000", "true")
    ],
    "names that every object has": [
        says(bash(FINE, name=name)) for name in ("__proto__", "constructor", "Constructor")
    ],
    "names that every object has, and an end": [
        says(bash(FINE, name=name), finish_reason="stop") for name in ("__proto__", "constructor", "toString")
    ],
    "ids that every object has": [says(bash(FINE, id=name)) for name in ("__proto__", "constructor", "toString")],
    "two of such an id": [
        says(bash(FINE, id=name), bash(FINE, id=name, name="Bash")) for name in ("__proto__", "constructor", "toString")
    ],
    "no ids": [says(bash(FINE), bash("{"), bash(FINE), faults=(Fault(kind=FaultKind.NO_TOOL_CALL_ID),))],
    "long names": [says(bash(FINE, name="n" * 70), bash(FINE, name=""), bash(FINE, name="bash.run"))],
    "pieces that alternate": [says(bash(FINE), bash(FINE), text="so", reasoning="hm", mixed=True, null_text=True)],
    "finish reasons": [says(bash(FINE), finish_reason=reason) for reason in ("stop", "length", "function_call")],
}
"""One conversation each of what generated answers are made of, and what they brought to light."""


async def test_odd_answers_and_those_that_say_nothing_stay_in_one_branch_with_the_system_prompt_of_its_beginning() -> (
    None
):
    """The agent writes instructions and a skill where OpenCode looks for them, and makes a repository; it asks two
    sub-agents the same, and a sub-LLM before and after its last start, when it must still be the main agent."""
    write = (
        "cd $XDG_CONFIG_HOME/opencode && echo NEW >AGENTS.md && mkdir -p skills/x && "
        "printf -- '---\\nname: x\\ndescription: d\\n---\\nhi' >skills/x/SKILL.md; cd /app; git init -q ."
    )
    writes = says(ToolCall(name="bash", arguments={"command": write, "description": "d"}))
    question = ToolCall(name="llm_subcall", arguments={"prompt": "a question"})
    asks, nothing = says(agent("the job"), agent("the job"), question), Reply()
    odd = (writes, asks, *(reply for replies in ROWS.values() for reply in replies), nothing)
    done = Reply(text="so", finish_reason="function_call")
    conversation = Conversation((odd, (nothing,), (Reply(reasoning="hm"),), (says(bash(FINE), question), done)))
    job = [says(bash('{"command":"echo a","description":"d","timeout":5000.0}')), says(bash("{")), DONE]
    sub = {"the job": job, "a question": [Reply(text="the answer")]}
    played = await talk(*conversation.segments, sub=sub, twins=True, pieces=conversation.pieces)
    assert_one_branch(played)
    assert (played.sub.num_branches, played.sub.num_turns) == (4, 8)
    assert played.main.metrics["sub_llm_history_forks"] == 0
    assert played.results.count("the answer") == 2
    PLAYED.add(conversation, len(played.requests))


@pytest.mark.parametrize(("family", "starts"), [("mistral-large", 2), ("claude-opus", 1)])
async def test_the_order_to_stop_at_the_step_limit_empty_answers_and_rewritten_ids_stay_as_the_model_read_them(
    family: str, starts: int
) -> None:
    """OpenCode rewrites the ids of calls for a family of models, and puts a word in the place of an empty answer."""
    two = says(bash(FINE, id="call_abcdefg:1"), bash(FINE, id="call_abcdefg:2"))
    three = says(bash(FINE, id="call_abcdefg:3"))
    segments = [[two, three, three, Reply()], [two, three, DONE]][:starts]
    played = await talk(*segments, prompt_model=family, opencode_config={"agent": {"build": {"steps": 2}}})
    assert_one_branch(played)
    orders = [node.message for node in played.main.nodes if "MAXIMUM STEPS" in str(node.message.content)]
    assert len(orders) == sum(len(segment) - 1 for segment in segments)
    results = [node.message.tool_call_id for node in played.main.nodes if node.message.role == "tool"]
    assert results == [call.id for segment in segments for reply in segment for call in reply.tool_calls]
    bodies = [request.body for request in played.requests]
    assert [one["tool_call_id"] for one in bodies[-1]["messages"] if one["role"] == "tool"] == results
    for message in (message for body in bodies for message in body["messages"]):
        message.pop("cache_control", None)
    assert_extends(bodies)


@pytest.mark.skipif(WANTED is not None, reason="of the fixed choice only")
def test_every_behaviour_was_generated() -> None:
    """Runs behind the others; alone it has nothing to count."""
    if PLAYED.rollouts > AT_ONCE:
        assert {*KINDS, *OF_SUB_AGENTS} - PLAYED.behaviours.keys() == set()
