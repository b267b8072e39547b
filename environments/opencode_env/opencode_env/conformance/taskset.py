"""The suite's taskset: rows of shell commands for every stage, with hooks that write what they see to a journal.

It runs inside `vf-eval`, where it is the taskset `conformance-tasks`, and knows nothing of the agent.
"""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf
from opencode_rubrics import Rubric, RubricConfig, cleanup, live_rubric
from verifiers.v1.runtimes import Runtime

JOURNAL_VARIABLE = "CONFORMANCE_JOURNAL"
"""The variable that names the journal, a JSONL file."""
COMMAND_MARK = "conformance-command"
"""A word in every command that the model gives, by which it is told in whatever form it was given."""

_barriers: dict[str, asyncio.Barrier] = {}


class ConformanceData(vf.TaskData):
    """One row; an empty command is skipped."""

    before: str = ""
    """Runs before the agent."""
    checks: dict[str, str] = {}
    """Commands that must succeed after the agent, by name; the reward is 1 when all do."""
    commanded: dict[str, str] = {}
    """Further checks, where the model told the agent to run a command."""
    said: str = ""
    """What the agent's model must have said for the reward."""
    meets: str = ""
    """Rows of one name wait for one another, two at a time, before and after the agent."""
    hook: Literal["sound", "raises"] = "sound"


class ConformanceRubricConfig(RubricConfig):
    """No options."""

    type: str = "opencode_env.conformance.taskset:ConformanceRubric"


class ConformanceRubric(Rubric[ConformanceRubricConfig]):
    """Scores nothing; has a hook between the task's two."""

    @cleanup(priority=10)
    async def note_rubric(self, task: ConformanceData, trace: Any, runtime: Runtime) -> None:
        await note("rubric", task, trace, runtime)


class ConformanceTask(vf.Task[ConformanceData]):
    """Runs its row's commands in the sandbox."""

    @property
    def rubric(self) -> Rubric[Any]:
        return live_rubric(ConformanceRubricConfig())

    async def setup(self, trace: Any, runtime: Runtime) -> None:
        if self.data.before:
            result = await runtime.run(["sh", "-c", self.data.before], {})
            if result.exit_code != 0:
                raise vf.TaskError(f"the row's setup failed: {result.stderr}")
        await self._meet()

    async def finalize(self, trace: Any, runtime: Runtime) -> None:
        await self._meet()

    @vf.reward
    async def checked(self, trace: Any, runtime: Runtime) -> float:
        spoken = [message.model_dump_json() for message in trace.assistant_messages]
        commanded = self.data.commanded if any(COMMAND_MARK in words for words in spoken) else {}
        results = {}
        for name, command in {**self.data.checks, **commanded}.items():
            result = await runtime.run(["sh", "-c", command], {})
            results[name] = {"exit_code": result.exit_code, "output": (result.stdout + result.stderr)[-2000:]}
        trace.info["checks"] = results
        heard = not self.data.said or any(self.data.said in words for words in spoken)
        return float(heard and all(result["exit_code"] == 0 for result in results.values()))

    @cleanup(priority=20)
    async def note_first(self, task: ConformanceData, trace: Any, runtime: Runtime) -> None:
        await note("first", task, trace, runtime)
        if task.hook == "raises":
            raise RuntimeError("this hook raises")

    @cleanup(priority=-5)
    async def note_last(self, task: ConformanceData, trace: Any, runtime: Runtime) -> None:
        await note("last", task, trace, runtime)

    async def _meet(self) -> None:
        if self.data.meets:
            await _barriers.setdefault(self.data.meets, asyncio.Barrier(2)).wait()


async def note(hook: str, task: ConformanceData, trace: Any, runtime: Runtime) -> None:
    """Append what a hook sees: its row, the verdict so far, and what the sandbox answers (None: it is gone)."""
    try:
        answer: str | None = (await runtime.run(["sh", "-c", "echo alive"], {})).stdout.strip()
    except vf.SandboxError:
        answer = None
    error = trace.last_error.type if trace is not None and trace.last_error else None
    seen = {"hook": hook, "row": task.id, "sandbox": answer, "error": error}
    await asyncio.to_thread(_append, json.dumps(seen))


def _append(line: str) -> None:
    with open(os.environ[JOURNAL_VARIABLE], "a") as journal:
        journal.write(line + "\n")


class ConformanceTasksetConfig(vf.TasksetConfig):
    """Sets where the rows are."""

    rows: str = ""
    """A JSONL file of `ConformanceData`."""


class ConformanceTaskset(vf.Taskset[ConformanceTask, ConformanceTasksetConfig]):
    """The rows of a file."""

    def load(self) -> Iterator[ConformanceTask]:
        for line in Path(self.config.rows).read_text().rstrip("\n").split("\n"):
            yield ConformanceTask(ConformanceData.model_validate(json.loads(line)), self.config.task)
