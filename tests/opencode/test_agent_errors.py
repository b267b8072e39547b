"""An agent that breaks its own run: an error of a type of its own, which nothing tries again by itself."""

from collections.abc import Sequence

import pytest
from opencode_env.cli_agent import agent_error
from opencode_env.scripted_model import Reply

from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import Played, play

pytestmark = pytest.mark.opencode

DONE = Reply(text="Done.")
REPORT = '{"type":"error","timestamp":1,"sessionID":"x","error":{"name":"UnknownError","data":{"message":"%s"}}}'
APPEND = (
    "setsid sh -c 'while sleep 0.01; do echo '\\''%s'\\'' >> '$OPENCODE_ENV_STATE'/events.jsonl; done' "
    ">/dev/null 2>&1 &"
)


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
