"""verifiers' own `opencode` harness in our environment: `vf-eval opencode-env --env.agent.harness.id opencode`.

The OpenCode 2 behind it is the registry's where it has one, else the preview (`tests/support/opencode2.py`).
"""

import asyncio
import os
from pathlib import Path

import pytest
from opencode_env.agents.named.npm import make_tree, node_tree
from opencode_env.agents.opencode.env import opencode2_tree
from opencode_env.conformance.dialect import ToolDialect
from opencode_env.scripted_model import Reply
from opencode_env.scripted_model.policy import ChatRequest
from rollout_sandbox.compat import AFTER_0_4_0

from tests.support.opencode2 import SUPPORTED, npm_with_opencode2
from tests.support.rows import write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not AFTER_0_4_0, reason="verifiers 0.4.0 has no harness for OpenCode"),
    pytest.mark.skipif(not SUPPORTED, reason="the preview of OpenCode 2 is for x86_64 only"),
]

VERSION = "2.1.4"
"""The release that verifiers 0.4.1.dev86 names."""
CANARY = "canary"
COMMANDS = {
    "right": "echo 42 >answer.txt",
    "wrong": "echo 41 >answer.txt",
    # What the agent can see of the host's home, and whether it can change what other rollouts see.
    "curious": "cat {home}/canary >answer.txt; touch /opt/harness-files/*/touched && echo 43 >>answer.txt; true",
}
CHECKS = {"curious": "test ! -s answer.txt"}


class Policy:
    """Runs the command of its row, then says that it is done."""

    def __init__(self, home: Path) -> None:
        self.home = home

    def __call__(self, request: ChatRequest, /) -> Reply:
        if request.turn > 0:
            return Reply(text="done")
        (command,) = [command for name, command in COMMANDS.items() if f"row {name}:" in request.prompt]
        return ToolDialect().command(request, command.format(home=self.home)) or Reply()


@pytest.fixture(scope="module")
def finished(shared_home: UserHome) -> FinishedEvaluation:
    """One run of all rows, one at a time, and tried again: OpenCode 2 gives up on a machine that is too busy."""
    home = shared_home
    env = {
        "PATH": f"{npm_with_opencode2(home.root / 'npm')}{os.pathsep}{os.environ['PATH']}",
        "OPENCODE_ENV_CACHE": str(home.root / "cache"),
        "UV_CACHE_DIR": os.environ.get("UV_CACHE_DIR") or str(Path.home() / ".cache" / "uv"),
    }
    (home.home / CANARY).write_text(CANARY)
    checks = {name: CHECKS.get(name, "grep -qx 42 answer.txt") for name in COMMANDS}
    rows = [{"id": name, "question": f"row {name}: work", "verify": [check]} for name, check in checks.items()]
    dataset = write_rows(home.root / "rows.jsonl", rows)
    arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), "--env.agent.harness.id", "opencode"]
    arguments += ["--env.retries.max-retries", "8", "-c", "1"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in env.items():
            patch.setenv(name, value)
        # A download, which may take a while, is not on the clock of a rollout.
        for tree in (node_tree(), opencode2_tree(VERSION)):
            make_tree(tree)
    return asyncio.run(home.play("opencode", Policy(home.home), *arguments, env=env))


@pytest.mark.parametrize(("name", "reward"), [("right", 1.0), ("wrong", 0.0), ("curious", 1.0)])
def test_its_agent_works_in_our_sandbox_and_is_scored_there(
    finished: FinishedEvaluation, name: str, reward: float
) -> None:
    assert finished.exit_code == 0, finished.log
    trace = finished.trace(name)
    assert (trace.ok, trace.reward, trace.stop_condition) == (True, reward, "agent_completed"), finished.log
    assert (trace.num_turns, len(trace.branches)) == (2, 1)
    assert trace.agent is not None
    assert trace.agent.config.harness is not None
    assert trace.agent.config.harness.id == "opencode"
    assert trace.agent.config.runtime.type == "subprocess"


def test_our_metrics_are_on_its_trace(finished: FinishedEvaluation) -> None:
    metrics = finished.trace("right").metrics
    assert (metrics["num_turns"], metrics["total_tool_calls"], metrics["agent_error"]) == (2, 1, 0)


def test_nothing_is_left_behind(finished: FinishedEvaluation, shared_home: UserHome) -> None:
    assert finished.exit_code == 0
    assert shared_home.leftovers() == []
