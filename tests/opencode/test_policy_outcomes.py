"""Whatever the policy does, OpenCode's run is a finished rollout: scored, and marked for what it was."""

from collections.abc import Sequence
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ToolCall, Usage

from tests.support.places import Place
from tests.support.replies import bash, call, fault
from tests.support.rollouts import play

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
WINDOW = '{"error": {"message": "This model\'s maximum context length is 4096 tokens.", "code": 400}}'
SPENT = Usage(prompt_tokens=900, completion_tokens=100)


def spending(reply: Reply) -> Reply:
    return reply.model_copy(update={"usage": SPENT})


def calling(name: str, arguments: str) -> Reply:
    return Reply(tool_calls=(ToolCall(name=name, arguments=arguments),))


@pytest.mark.parametrize(
    ("script", "settings", "stop", "turns", "truncated", "metrics"),
    [
        pytest.param([Reply()], {}, "agent_completed", 1, False, {"empty_answer": 1}, id="empty answer"),
        pytest.param(
            [Reply(reasoning="Hm.")], {}, "agent_completed", 1, False, {"empty_answer": 1}, id="only reasoning"
        ),
        pytest.param([Reply(text="I cannot do that.")], {}, "agent_completed", 1, False, {}, id="giving up"),
        pytest.param([Reply(text="So", finish_reason="length")], {}, "agent_completed", 1, True, {}, id="length"),
        pytest.param(
            [calling("bash", '{"command": oops'), call("no_such_tool", x=1), call("bash"), calling("bash", "[]"), DONE],
            {},
            "agent_completed",
            5,
            False,
            {"total_tool_calls": 4, "bash_calls": 3, "unique_tools_used": 2},
            id="calls that cannot be carried out",
        ),
        pytest.param(
            [bash("echo 1"), bash("echo 2"), DONE],
            {"max_turns": 2},
            "max_turns",
            2,
            True,
            {"bash_calls": 2},
            id="turns",
        ),
        pytest.param(
            [spending(bash("echo 1")), spending(DONE)],
            {"max_total_tokens": 1000},
            "max_total_tokens",
            1,
            True,
            {"context_overflow": 0},
            id="token budget",
        ),
        pytest.param(
            [bash("echo 1"), Reply(faults=fault("status", status=400, body=WINDOW))],
            {},
            "max_total_tokens",
            1,
            True,
            {"context_overflow": 1, "model_call_errors": 1},
            id="context window",
        ),
        pytest.param(
            [bash("echo 1"), Reply(text="I c", finish_reason="content_filter")],
            {},
            "content_filter",
            2,
            False,
            {},
            id="content filter",
        ),
    ],
)
async def test_what_the_policy_did_is_scored_and_marked(
    confined: Place,
    script: Sequence[Reply],
    settings: dict[str, Any],
    stop: str,
    turns: int,
    truncated: bool,
    metrics: dict[str, float],
) -> None:
    played = await play(confined, script, settings=settings)
    trace = played.trace
    assert trace.ok, trace.errors
    assert (trace.stop_condition, trace.num_turns, trace.is_truncated) == (stop, turns, truncated)
    assert trace.reward == 1.0
    assert {name: trace.metrics[name] for name in metrics} == metrics
    assert trace.metrics["agent_error"] == trace.metrics["agent_timeout"] == 0.0
    assert played.record["exit_code"] in (0, 1)
    assert played.record["session_id"].startswith("ses_")


async def test_a_normal_rollout_in_a_container_is_one_branch_and_leaves_a_complete_record(container: Place) -> None:
    played = await play(container, [bash("echo hi > made"), DONE], after="cat /app/made")
    assert played.trace.ok, played.trace.errors
    assert played.seen == "hi\n"
    assert played.trace.num_branches == 1
    record = played.record
    assert {name: record[name] for name in ("version", "outcome", "exit_code", "segments")} == {
        "version": "1.18.33",
        "outcome": "completed",
        "exit_code": 0,
        "segments": 1,
    }
    assert 0 < record["duration"] < played.seconds
    assert '"type":"step_finish"' in record["log_tail"]
    assert len(record["log_tail"].encode()) <= 4000


async def test_a_conversation_that_outgrows_the_servers_own_window_is_scored(confined: Place) -> None:
    fill = bash("head -c 30000 /dev/zero | tr '\\0' x")
    played = await play(confined, [fill, DONE], server={"context_window": 9000})
    assert played.trace.ok, played.trace.errors
    assert (played.trace.stop_condition, played.record["outcome"]) == ("max_total_tokens", "context_window")
    assert played.trace.reward == 1.0


async def test_a_stream_that_was_cut_and_recovered_leaves_one_branch(confined: Place) -> None:
    loud = Reply(text="Thinking aloud.", tool_calls=bash("echo 1").tool_calls, faults=fault("cut", attempts=1, after=8))
    played = await play(confined, [loud, DONE])
    assert played.trace.ok, played.trace.errors
    assert played.trace.num_branches == 1
    assert [message.role for message in played.trace.messages] == ["system", "user", "assistant", "tool", "assistant"]
    assert played.trace.metrics["model_call_errors"] == 1.0
    assert played.trace.reward == 1.0


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


async def test_a_normal_rollout_is_scored_and_its_whole_log_kept_when_asked_for(confined: Place, tmp_path: Any) -> None:
    played = await play(confined, [bash("echo hi"), DONE], harness={"log_dir": tmp_path / "logs", "log_tail": 100})
    log = tmp_path / "logs" / f"{played.trace.id}.log"
    assert played.record["log_file"] == str(log)
    assert log.read_text().startswith('{"type":"step_start"')
    trace = played.trace
    assert (trace.stop_condition, trace.num_turns, trace.is_truncated) == ("agent_completed", 2, False)
    assert trace.metrics["agent_error"] == trace.metrics["agent_timeout"] == 0.0
    assert (trace.reward, trace.metrics["bash_calls"], played.record["exit_code"]) == (1.0, 1.0, 0)
    assert len(played.record["log_tail"]) <= 100
