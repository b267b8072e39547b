"""The work directory is decided once per rollout, and every part works there."""

import asyncio
from typing import Any

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.support.replies import bash
from tests.support.rows import script, write_rows
from tests.support.user_home import Finished, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

SETUP = "pwd > made-by-setup"
WROTE = bash("cat made-by-setup > seen-by-agent; pwd >> seen-by-agent; echo 42 > answer.txt")
LINES = "printf '{0}\\n{0}\\n' | cmp - seen-by-agent"
ROWS: list[dict[str, Any]] = [
    {
        "id": "harness",
        "question": "row harness:",
        "setup": SETUP,
        "verify": ['test "$PWD" = /work', LINES.format("/work")],
    },
    {
        "id": "task",
        "question": "row task:",
        "workdir": "/srv/own",
        "setup": SETUP,
        "verify": [LINES.format("/srv/own")],
    },
    {"id": "answer", "question": "row answer:", "setup": SETUP, "answer": "42"},
]


@pytest.fixture(scope="module")
def finished(shared_home: UserHome) -> Finished:
    """Rows that say where they are, with another work directory of the harness."""
    dataset = write_rows(shared_home.root / "rows.jsonl", ROWS)
    policy = ScriptPolicy(*[script(row["id"], WROTE, Reply(text="done")) for row in ROWS])

    async def run() -> Finished:
        async with ScriptedModel(policy) as model:
            arguments = ["opencode-env", "--env.taskset.dataset", str(dataset)]
            return await shared_home.run(
                "workdir", model.base_url, *arguments, "--env.agent.harness.agent-workdir", "/work"
            )

    return asyncio.run(run())


@pytest.mark.parametrize("row", ["harness", "task"])
def test_setup_agent_and_verify_work_in_one_directory(finished: Finished, row: str) -> None:
    assert finished.exit_code == 0, finished.log
    trace = finished.trace(row)
    assert (trace.ok, trace.reward) == (True, 1.0), trace.info["verify"]


def test_the_answer_file_is_looked_for_there(finished: Finished) -> None:
    trace = finished.trace("answer")
    assert trace.reward == 1.0
    assert trace.info["answer"] == {"source": "file", "reason": "equal"}
