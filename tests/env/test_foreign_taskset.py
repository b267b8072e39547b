"""`--env.id opencode-env` over a taskset that is not ours, and what an episode's retry makes of a sandbox that died."""

import asyncio
import os
import signal

import pytest
from opencode_env.scripted_model import Reply, ScriptPolicy
from opencode_env.scripted_model.policy import ChatRequest

from tests.support.replies import bash
from tests.support.rows import probe, probe_arguments, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome
from tests.support.versions import reaching

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

ROWS = [
    probe("plain", check="test -f /app/made && test $(hostname) = sandbox && test $(id -u) = 1000"),
    probe("dies-once", check="test -f /app/made"),
    probe("offline", check="test -f /app/made", **reaching([])),
    probe("one-host", check="true", **reaching(["example.com"])),
]


class SandboxKiller:
    """Plays one script for every row, and kills the sandbox of the row "dies-once", the first time, before it called a
    tool: after that the agent can have done it."""

    def __init__(self, home: UserHome) -> None:
        self.home = home
        self.kills = 1
        self.script = ScriptPolicy.of(bash("touch made"), Reply(text="done"))

    def __call__(self, request: ChatRequest, /) -> Reply:
        if self.kills and any("row dies-once:" in text for text in request.user_texts):
            self.kills -= 1
            for pid, command in self.home.processes().items():
                if os.path.basename(command.split()[0]) == "bwrap":
                    os.kill(pid, signal.SIGKILL)
            return Reply(text="nobody hears this")
        return self.script(request)


@pytest.fixture(scope="module")
def finished(shared_home: UserHome) -> FinishedEvaluation:
    """Both rows, one after the other, with one retry for each episode."""
    arguments = probe_arguments(write_rows(shared_home.root / "rows.jsonl", ROWS))
    arguments += ["--env.retries.max-retries", "1", "-c", "1"]
    return asyncio.run(shared_home.play("foreign", SandboxKiller(shared_home), *arguments))


def test_the_environments_id_brings_opencode_and_the_confined_sandbox_to_any_taskset(
    finished: FinishedEvaluation,
) -> None:
    trace = finished.trace("plain")
    assert (trace.ok, trace.reward) == (True, 1.0), finished.log
    assert trace.agent is not None
    assert trace.agent.config.harness is not None
    assert trace.agent.config.harness.id == "opencode-env"
    assert trace.agent.config.runtime.type == "subprocess"
    assert trace.info["agent"]["exit_code"] == 0
    assert trace.metrics["bash_calls"] == 1.0


def test_a_task_that_asks_for_no_network_gets_the_confined_sandbox_and_its_agent_is_told(
    finished: FinishedEvaluation,
) -> None:
    trace = finished.trace("offline")
    assert (trace.ok, trace.reward) == (True, 1.0), finished.log
    assert "External network access is disabled." in str(trace.nodes[0].message.content)


def test_a_task_that_asks_for_a_host_is_refused(finished: FinishedEvaluation) -> None:
    assert finished.error("one-host").startswith("TaskError: the task asks for a network with example.com")


def test_an_episode_whose_sandbox_died_is_played_again_in_a_new_one(
    finished: FinishedEvaluation, shared_home: UserHome
) -> None:
    episode = finished.episode("dies-once")
    assert episode.ok, finished.log
    assert episode.traces[-1].reward == 1.0
    first, last = [line for line in finished.lines if "task=dies-once " in line]
    assert "reward=- error=SandboxError: " in first
    assert "reward=1.000 error=-" in last
    assert shared_home.leftovers() == []
