"""Another CLI agent is a harness, without a configuration or an environment of its own (`plugins/shell_agent.py`)."""

import asyncio

import pytest
from opencode_env.scripted_model import Reply, ScriptPolicy

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
