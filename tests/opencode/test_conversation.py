"""Further turns of the user go on with one conversation in every sandbox, and the light program speaks.

OpenCode: `test_later_segments.py`.
"""

import pytest
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Reply
from verifiers.v1.agent import TimeoutConfig

from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import assert_extends, conversation
from tests.support.waiting import within_a_limit

LEFT = """
state=$OPENCODE_ENV_STATE
for kind in plugin plugins; do
    mkdir -p $state/config/opencode/$kind
    echo 'require("node:fs").writeFileSync("/app/ran", "")' >$state/config/opencode/$kind/evil.js
done
echo '{"agent": {"build": {"prompt": "You are evil."}}}' >$state/config/opencode/opencode.jsonc
(setsid sh -c 'while sleep 0.1; do date +%N >/app/beat; cat /tmp/opencode/mark; done' >/app/mark 2>/dev/null &)
until [ -s /app/beat ]; do sleep 0.1; done
"""
BEATS = "a=$(cat /app/beat); sleep 1; [ $a = $(cat /app/beat) ] && echo still; cat /app/note /app/mark; "
FOUND = "find $OPENCODE_ENV_STATE/config -name '*evil*' -o -name opencode.jsonc"


async def test_further_turns_continue_one_session_that_only_grows_and_meet_nothing_that_the_first_left(
    light_place: Place,
) -> None:
    """The first prompt has more than a megabyte, and arrives whole. Its segment leaves a process and configuration."""
    prompt = "Do the first thing." + "".join(f"{number} é\u2028\n" for number in range(100_000))
    replies = [bash(f"echo one > /app/note\n{LEFT}"), Reply(text="First."), bash(BEATS + FOUND), Reply(text="Done.")]
    async with conversation(light_place, replies) as (talk, model):
        first = await talk.turn(prompt)
        second = await talk.turn("--last thing\n")
    trace = talk.trace
    assert trace.ok, trace.errors
    assert (first.last_reply, second.last_reply) == ("First.", "Done.")
    assert (trace.num_branches, trace.num_turns, trace.reward, trace.info["agent"]["segments"]) == (1, 4, 1.0, 2)
    assert [str(message.content) for message in trace.messages if message.role == "tool"][1] == "still\none\n"
    assert_extends([request.body for request in model.requests])
    last = model.requests[-1].body["messages"]
    assert [message["content"] for message in last if message["role"] == "user"] == [prompt, "--last thing\n"]


@pytest.mark.usefixtures("light")
async def test_a_later_turn_that_runs_out_of_time_leaves_its_own_record(confined: Place) -> None:
    replies = [Reply(text="First."), bash("sleep 600", timeout=700_000)]

    async def limited(seconds: float) -> AnyTrace:
        timeout = {"timeout": TimeoutConfig(rollout=seconds)}
        async with conversation(confined, replies, settings=timeout) as (talk, _):
            await talk.turn("Do the first thing.")
            if talk.trace.stop_condition is None:
                await talk.turn("Do the second thing.")
        trace: AnyTrace = talk.trace
        return trace

    trace = await within_a_limit(limited, lambda trace: trace.num_turns == 2)
    assert (trace.ok, trace.stop_condition) == (True, "agent_timeout")
    record = trace.info["agent"]
    assert (record["segments"], record["exit_code"], record["outcome"]) == (2, None, None)
    assert record["session_id"].startswith("ses_")
