"""However an agent ends its run, and whatever it makes of its log and state: scored as it is, and told on the trace."""

import asyncio

import pytest
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.scripted_model import Reply
from rollout_sandbox.confined import limits

from tests.support.places import Place
from tests.support.replies import bash
from tests.support.rollouts import Played, conversation, play
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.usefixtures("light_opencode")

DONE = Reply(text="Done.")
LAUNCH = "read -r _ _ _ launch _ </proc/$PPID/stat; kill -9 $launch $PPID; sleep 5"


def assert_own(played: Played, *words: str) -> None:
    trace = played.trace
    assert trace.ok, trace.errors
    assert all(word in played.record["own_error"] for word in words), played.record["own_error"]
    assert (trace.metrics["agent_error"], trace.metrics["agent_error_own"]) == (1.0, 1.0)
    assert (trace.stop_condition, played.scored) == ("agent_error", True)


@pytest.mark.parametrize(
    ("commands", "words"),
    [
        pytest.param(["kill -TERM $PPID; sleep 5"], "(exit", id="terminate"),
        pytest.param(["kill -SEGV $PPID; sleep 5"], "was killed or crashed (exit", id="crash"),
        pytest.param(["echo 1", "kill -9 $PPID"], "was killed or crashed", id="later"),
    ],
)
async def test_it_is_the_same_however_and_whenever_opencode_is_ended(
    confined: Place, commands: list[str], words: str
) -> None:
    assert_own(await play(confined, [*map(bash, commands), DONE]), words)


@pytest.mark.parametrize(
    "swap",
    [
        "rm events.jsonl stderr.log; mkfifo events.jsonl stderr.log",
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


async def two_turns(confined: Place, spoil: str) -> AnyTrace:
    """A conversation whose first segment spoils OpenCode's state directory, `{0}`."""
    state = "$OPENCODE_ENV_STATE"
    spoiled = f"rm -f {state}/prompt.txt; {spoil.format(state)}"
    async with conversation(confined, [bash(spoiled), Reply(text="First."), DONE]) as (talk, _):
        await talk.turn("Do the first thing.")
        await talk.turn("Do the second thing.")
    trace: AnyTrace = talk.trace
    return trace


@pytest.mark.parametrize("spoil", ["chmod 500 {0}", "mkdir -p {0}/prompt.txt/x"])
async def test_a_state_directory_in_which_nothing_can_be_written_is_made_anew(confined: Place, spoil: str) -> None:
    trace = await two_turns(confined, spoil)
    assert (trace.ok, trace.metrics["agent_error"], trace.num_turns) == (True, 0.0, 3)


async def test_a_state_directory_that_is_gone_is_not_the_sandboxs_failure(confined: Place) -> None:
    trace = await two_turns(confined, "mv {0} /tmp/x; mkfifo {0}")
    assert (trace.ok, trace.metrics["agent_error_own"]) == (True, 1.0)
    assert trace.info["agent"]["own_error"].startswith("HarnessError: ")


async def test_a_kill_while_the_kernel_has_no_memory_for_the_sandbox_is_the_machines(
    confined: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "kills_of_group", lambda group: limits.MemoryKills(below_limit=1))
    played = await play(confined, [bash("kill -9 $PPID"), DONE])
    assert played.error.startswith("HarnessError: OpenCode was killed or crashed")
    assert "killed for want of memory meanwhile" in played.error
    assert (played.trace.metrics["agent_error"], played.trace.metrics["agent_error_own"]) == (1.0, 0.0)
