"""An agent that breaks its own run: an error of a type of its own, which nothing tries again by itself."""

import asyncio
from collections.abc import Sequence

import pytest
from opencode_env.cli_agent import agent_error
from opencode_env.scripted_model import Reply

from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import Played, conversation, play
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
REPORT = '{"type":"error","timestamp":1,"sessionID":"x","error":{"name":"UnknownError","data":{"message":"%s"}}}'
APPEND = (
    "setsid sh -c 'while sleep 0.01; do echo '\\''%s'\\'' >> '$OPENCODE_ENV_STATE'/events.jsonl; done' "
    ">/dev/null 2>&1 &"
)


LAUNCH = "read -r _ _ _ launch _ </proc/$PPID/stat; kill -9 $launch $PPID; sleep 5"


def assert_own(played: Played, *words: str) -> None:
    trace = played.trace
    assert not trace.ok
    assert not played.scored
    assert played.error.startswith("AgentError: "), played.error
    assert all(word in played.error for word in words), played.error
    assert (trace.metrics["agent_error"], trace.metrics["agent_error_own"]) == (1.0, 1.0)
    assert trace.stop_condition == "agent_error"


@pytest.mark.parametrize(
    ("script", "words"),
    [
        pytest.param([bash("kill -9 $PPID"), DONE], ["was killed or crashed (exit"], id="kill"),
        pytest.param([bash("kill -TERM $PPID; sleep 5"), DONE], ["(exit"], id="terminate"),
        pytest.param([bash("kill -SEGV $PPID; sleep 5"), DONE], ["was killed or crashed (exit"], id="crash"),
        pytest.param(
            [bash("for p in /proc/[0-9]*; do kill -9 ${p#/proc/}; done"), DONE], ["was killed or"], id="kill everything"
        ),
        pytest.param([bash("echo 1"), bash("kill -9 $PPID"), DONE], ["was killed or crashed"], id="later"),
        pytest.param([bash(APPEND % (REPORT % "broken")), DONE], ["reported an error", "broken"], id="faked report"),
        pytest.param(
            [bash(APPEND % (REPORT % "The operation timed out.") + " sleep 1; kill -9 $PPID"), DONE],
            ["was killed or crashed"],
            id="faked time-out",
        ),
    ],
)
async def test_what_the_agents_own_programs_can_do_is_an_error_of_its_own_type(
    place: Place, script: Sequence[Reply], words: Sequence[str]
) -> None:
    assert_own(await play(place, script), *words)


@pytest.mark.parametrize(
    "swap",
    [
        "rm events.jsonl; mkfifo events.jsonl",
        "rm stderr.log; mkfifo stderr.log",
        "rm events.jsonl; ln -s /dev/zero events.jsonl",
        "rm -f events.jsonl stderr.log; mkdir events.jsonl stderr.log",
    ],
)
@pytest.mark.parametrize("dies", ["kill -9 $PPID; sleep 5", LAUNCH], ids=["opencode", "its launcher, too"])
async def test_a_log_that_cannot_be_read_is_neither_waited_for_nor_the_sandboxs_failure(
    confined: Place, swap: str, dies: str
) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        played = await play(confined, [bash(f"cd $OPENCODE_ENV_STATE; {swap}; {dies}"), DONE])
    assert_own(played, "was killed or crashed")


@pytest.mark.parametrize(
    "spoil",
    ["chmod 500 {0}", "mv {0} /tmp/x; mkfifo {0}", "mkdir -p {0}/prompt.txt/x"],
)
async def test_a_next_prompt_that_cannot_be_written_is_not_the_sandboxs_failure(confined: Place, spoil: str) -> None:
    state = "$OPENCODE_ENV_STATE"
    spoiled = f"rm -f {state}/prompt.txt; {spoil.format(state)}"
    async with conversation(confined, [bash(spoiled), Reply(text="First."), DONE]) as (talk, _):
        await talk.turn("Do the first thing.")
        await talk.turn("Do the second thing.")
    assert (talk.trace.last_error.type, talk.trace.metrics["agent_error_own"]) == ("AgentError", 1.0)
    assert "writing the prompt failed" in talk.trace.last_error.message


async def test_a_kill_while_the_kernel_ends_processes_for_want_of_memory_is_the_machines(
    confined: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([7, 8])
    monkeypatch.setattr(agent_error, "memory_kills", lambda: next(counts))
    monkeypatch.setattr("opencode_env.cli_agent.guard.memory_kills", lambda: next(counts))
    played = await play(confined, [bash("kill -9 $PPID"), DONE])
    assert played.error.startswith("HarnessError: OpenCode was killed or crashed")
    assert "killed for want of memory meanwhile" in played.error
    assert (played.trace.metrics["agent_error"], played.trace.metrics["agent_error_own"]) == (1.0, 0.0)
