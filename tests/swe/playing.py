"""Rollouts of software engineering tasks without a model: setup, an agent's script, scoring, in real sandboxes."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opencode_env.check_tasks.check import CheckEnv, TaskSandbox
from opencode_env.cli_agent.env import CliAgentEnvConfig
from opencode_env.taskset import OpenCodeTask
from opencode_rubrics import AnyTrace
from opencode_swe import OpenCodeSweTaskset, OpenCodeSweTasksetConfig
from verifiers.v1.runtimes import ProgramResult

from tests.support.rows import write_rows


def tasks_of(rows: Sequence[Mapping[str, Any]], place: Path) -> list[OpenCodeTask]:
    """The tasks of these rows."""
    path = write_rows(place / "rows.jsonl", rows)
    config = OpenCodeSweTasksetConfig(id="opencode-swe", dataset=str(path))
    return list(OpenCodeSweTaskset(config).load())


def patching(patch: str) -> str:
    """The script that applies a patch."""
    return f"git apply - <<'THE_END_OF_IT'\n{patch}THE_END_OF_IT\n"


def environment(**seat: Any) -> CheckEnv:
    """An environment that runs no agent; `seat` are fields of its seat, as its runtime."""
    agent = CliAgentEnvConfig().agent.model_copy(update=seat)
    return CheckEnv(CliAgentEnvConfig(taskset=OpenCodeSweTasksetConfig(id="opencode-swe"), agent=agent))


async def ran(box: TaskSandbox, script: str) -> ProgramResult:
    """What came of an agent's script in the work directory."""
    return await box.agents.run(["sh", "-c", 'cd "$1" && exec bash -c "$2"', "agent", box.workdir, script], {})


async def played(task: OpenCodeTask, script: str, env: CheckEnv | None = None) -> AnyTrace:
    """The scored trace of an agent that ran one script."""
    async with (env or environment()).box(task) as box:
        done = await ran(box, script)
        trace = await box.score()
        trace.info["agent_exit"] = done.exit_code, done.stdout, done.stderr
        return trace
