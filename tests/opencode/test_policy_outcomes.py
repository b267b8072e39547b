"""Whatever the policy does, OpenCode's run is a finished rollout: scored, and marked for what it was.

Where what OpenCode does with it is nothing special, the light program plays it.
"""

from collections.abc import Sequence
from typing import Any

import pytest
from opencode_env.cli_agent.interception_servers import role_interception
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Reply, ToolCall, Usage
from verifiers.v1.interception import Interception, InterceptionServerConfig

from tests.support.places import Place
from tests.support.replies import bash, call, fault
from tests.support.rollouts import play

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
LIGHT = pytest.mark.usefixtures("light")
WINDOW = '{"error": {"message": "This model\'s maximum context length is 4096 tokens.", "code": 400}}'
SPENT = Usage(prompt_tokens=900, completion_tokens=100)


async def assert_scored(
    place: Place,
    script: Sequence[Reply],
    stop: str,
    turns: int,
    *,
    truncated: bool = False,
    interception: Interception | None = None,
    **settings: Any,
) -> AnyTrace:
    """Play it, and see that it is a finished rollout."""
    played = await play(place, script, interception=interception, settings=settings)
    trace = played.trace
    assert trace.ok, trace.errors
    assert (trace.stop_condition, trace.num_turns, trace.is_truncated) == (stop, turns, truncated)
    assert trace.reward == 1.0
    assert trace.metrics["agent_error"] == trace.metrics["agent_timeout"] == 0.0
    assert played.record["exit_code"] in (0, 1)
    assert played.record["session_id"].startswith("ses_")
    return trace


async def test_a_recovered_stream_and_calls_that_cannot_be_carried_out_are_turns_like_others_and_a_filter_is_an_end(
    confined: Place,
) -> None:
    loud = Reply(text="Thinking aloud.", tool_calls=bash("echo 1").tool_calls, faults=fault("cut", attempts=1, after=8))
    broken, none = (Reply(tool_calls=(ToolCall(name="bash", arguments=text),)) for text in ('{"command": oops', "[]"))
    filtered = Reply(text="I c", finish_reason="content_filter")
    turns = [loud, broken, call("no_such_tool", x=1), call("bash"), none, filtered]
    async with role_interception(InterceptionServerConfig()) as server:
        trace = await assert_scored(confined, turns, "content_filter", 6, interception=server)
    assert trace.num_branches == 1
    assert [message.role for message in trace.messages] == ["system", "user", *["assistant", "tool"] * 5, "assistant"]
    counted = ("total_tool_calls", "bash_calls", "unique_tools_used", "model_call_errors")
    assert [trace.metrics[name] for name in counted] == [5.0, 4.0, 2.0, 1.0]


async def test_opencode_ends_at_the_limit_of_turns(confined: Place) -> None:
    turns = [bash("echo 1"), bash("echo 2"), DONE]
    trace = await assert_scored(confined, turns, "max_turns", 2, truncated=True, max_turns=2)
    assert trace.metrics["bash_calls"] == 2.0


@LIGHT
@pytest.mark.parametrize("reasoning", ["", "Hm."])
async def test_an_empty_answer_is_an_end_and_marked(confined: Place, reasoning: str) -> None:
    trace = await assert_scored(confined, [Reply(reasoning=reasoning)], "agent_completed", 1)
    assert trace.metrics["empty_answer"] == 1.0


@LIGHT
async def test_an_answer_that_was_cut_at_its_length_is_an_end_and_truncated(confined: Place) -> None:
    cut = Reply(text="So", finish_reason="length")
    await assert_scored(confined, [cut], "agent_completed", 1, truncated=True)


@LIGHT
async def test_what_is_spent_and_what_is_too_long_is_told_apart(confined: Place) -> None:
    spends = [reply.model_copy(update={"usage": SPENT}) for reply in (bash("echo 1"), DONE)]
    trace = await assert_scored(confined, spends, "max_total_tokens", 1, truncated=True, max_total_tokens=1000)
    assert trace.metrics["context_overflow"] == 0.0
    too_long = [bash("echo 1"), Reply(faults=fault("status", status=400, body=WINDOW))]
    trace = await assert_scored(confined, too_long, "max_total_tokens", 1, truncated=True)
    assert (trace.metrics["context_overflow"], trace.metrics["model_call_errors"]) == (1.0, 1.0)


@LIGHT
async def test_a_conversation_that_outgrows_the_servers_own_window_is_scored(confined: Place) -> None:
    fill = bash("head -c 30000 /dev/zero | tr '\\0' x")
    played = await play(confined, [fill, DONE], server={"context_window": 5000})
    assert played.trace.ok, played.trace.errors
    ended = (played.trace.stop_condition, played.record["outcome"], played.trace.reward)
    assert ended == ("max_total_tokens", "context_window", 1.0)


@LIGHT
@pytest.mark.parametrize(
    "mischief",
    [
        "head -c 300000 /dev/zero | tr '\\0' '[' >> $STATE/events.jsonl; printf '\\377\\376\\n' >> $STATE/events.jsonl",
        "rm -f $STATE/events.jsonl $STATE/stderr.log",
    ],
)
async def test_an_agent_that_spoils_its_own_log_is_judged_by_its_calls(confined: Place, mischief: str) -> None:
    played = await play(confined, [bash(f"STATE=$OPENCODE_ENV_STATE; {mischief}; echo spoiled"), DONE])
    assert played.trace.ok, played.trace.errors
    assert played.tool_results() == ["spoiled\n"]
    assert (played.record["outcome"], played.trace.reward) == ("completed", 1.0)
    assert len(played.record["log_tail"].encode()) <= 2 * 4000 + 1
