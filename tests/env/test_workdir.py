"""The work directory is decided once per rollout, and every part works there."""

import asyncio
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptPolicy

from tests.support.replies import bash
from tests.support.rows import script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

WROTE = bash("cat made-by-setup > seen-by-agent; pwd >> seen-by-agent; echo 42 > answer.txt")
LINES = "printf '{0}\\n{0}\\n' | cmp - seen-by-agent"
ROWS: list[dict[str, Any]] = [
    {"id": "harness", "verify": ['test "$PWD" = /work', LINES.format("/work")]},
    {"id": "task", "verify": [LINES.format("/srv/own")], "workdir": "/srv/own"},
    {"id": "answer", "answer": "42"},
]


@pytest.fixture(scope="module")
def finished(shared_home: UserHome) -> FinishedEvaluation:
    """Rows that say where they are, with another work directory of the harness."""
    rows = [{**row, "question": f"row {row['id']}:", "setup": "pwd > made-by-setup"} for row in ROWS]
    dataset = str(write_rows(shared_home.root / "rows.jsonl", rows))
    policy = ScriptPolicy(*[script(row["id"], WROTE, Reply(text="done")) for row in ROWS])
    arguments = ["opencode-env", "--env.taskset.dataset", dataset, "--env.agent.harness.agent-workdir", "/work"]
    return asyncio.run(shared_home.play("workdir", policy, *arguments))


@pytest.mark.parametrize("row", ["harness", "task"])
def test_setup_agent_and_verify_work_in_one_directory(finished: FinishedEvaluation, row: str) -> None:
    assert finished.exit_code == 0, finished.log
    trace = finished.trace(row)
    assert (trace.ok, trace.reward) == (True, 1.0), trace.info["verify"]


def test_the_answer_file_is_looked_for_there(finished: FinishedEvaluation) -> None:
    trace = finished.trace("answer")
    assert trace.reward == 1.0
    assert trace.info["answer"] == {"source": "file", "reason": "equal"}
