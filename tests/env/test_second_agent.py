"""Another CLI agent is a harness, without a configuration or an environment of its own (`plugins/shell_agent.py`)."""

import asyncio
import os
import re
from pathlib import Path

import pytest
from opencode_env.agents import agent_tree, npm_binds
from opencode_env.scripted_model import Reply, ScriptPolicy
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined
from verifiers.v1.harnesses import node

from tests.support.replies import bash
from tests.support.rows import script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = pytest.mark.slow

ROWS = [
    {"id": "right", "question": "row right: capital of France?", "verify": ["grep -qx Paris answer.txt", "true"]},
    {"id": "half", "question": "row half: capital of Italy?", "verify": ["grep -qx Rome answer.txt", "true"]},
    {"id": "breaks", "question": "row breaks: ?", "verify": ["true"], "setup": "rm -rf /app; mkdir /app/answer.txt -p"},
]


@pytest.fixture(scope="module")
def finished(shared_home: UserHome) -> FinishedEvaluation:
    """Three rows of an ordinary dataset, scored by our rubric."""
    dataset = str(write_rows(shared_home.root / "rows.jsonl", ROWS))
    answers = {"right": "Paris", "half": "Milan", "breaks": "x"}
    policy = ScriptPolicy(*(script(name, Reply(text=answer)) for name, answer in answers.items()))
    arguments = ["opencode-env", "--env.taskset.dataset", dataset, "--env.agent.harness.id", "shell-agent"]
    return asyncio.run(shared_home.play("shell", policy, *arguments))


def test_it_is_run_in_the_sandbox_and_scored_there(finished: FinishedEvaluation) -> None:
    assert finished.exit_code == 0, finished.log
    right, half = finished.trace("right"), finished.trace("half")
    assert (right.ok, right.reward, right.num_turns) == (True, 1.0, 1)
    assert (half.ok, half.reward) == (True, 0.5)
    assert [result["exit_code"] for result in half.info["verify"]] == [1, 0]


def test_its_own_cleanup_hook_reads_what_it_left(finished: FinishedEvaluation) -> None:
    assert finished.trace("right").info["report"] == "by agent in /app\n"


def test_its_failure_is_an_error_and_no_reward(finished: FinishedEvaluation) -> None:
    trace = finished.trace("breaks")
    assert not trace.ok
    assert finished.error("breaks").startswith("HarnessError: ")
    assert all(reward is None for reward in trace.rewards.values())


def test_it_has_its_line_and_leaves_nothing(finished: FinishedEvaluation, shared_home: UserHome) -> None:
    (line,) = [line for line in finished.lines if "task=half " in line]
    assert "turns=1 tools=- stop=agent_completed exit=0" in line
    assert "reward=0.500 error=-" in line
    assert shared_home.leftovers() == []


PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "bring-your-agent.md"


async def test_the_agent_of_the_tutorial_works_as_it_is_shown(shared_home: UserHome) -> None:
    plugins = shared_home.root / "tutorial"
    plugins.mkdir()
    for block in re.findall(r"```python\n(# \w+\.py\n.*?)```", PAGE.read_text(), re.DOTALL):
        (plugins / block[2:].split("\n")[0]).write_text(block)
    row = {"id": "sum", "question": "17 + 25?", "answer": "42", "system_prompt": "Be brief."}
    rows = write_rows(plugins / "rows.jsonl", [row])
    arguments = ["opencode-env", "--env.taskset.dataset", str(rows), "--env.agent.harness.id", "my-agent"]
    policy = ScriptPolicy.of(bash("echo 42 > answer.txt"), Reply(text="It is 42."))
    path = {"PYTHONPATH": f"{shared_home.environment()['PYTHONPATH']}{os.pathsep}{plugins}"}
    evaluation = await shared_home.play("tutorial", policy, *arguments, env=path)
    trace = evaluation.trace("sum")
    assert (trace.ok, trace.reward, trace.num_turns) == (True, 1.0, 2), evaluation.log
    assert trace.nodes[0].message.content == "Be brief.\n\n17 + 25?"


async def test_an_agent_from_npm_is_shown_with_node(sandboxes: None) -> None:
    binds = await npm_binds(agent_tree("semver", "semver@7.7.2", links={"/opt/my-cli": "node_modules"}))
    async with provision_confined(LocalSandboxConfig(), binds=binds) as box:
        argv = [f"{node.NODE_BIN_DIR}/node", "/opt/my-cli/semver/bin/semver.js", "-r", "1.x", "0.9.0", "1.2.3"]
        done = await box.run(argv, {})
    assert (done.exit_code, done.stdout) == (0, "1.2.3\n"), done.stderr
