"""A taskset that knows nothing of opencode-env but its rubric and hooks: rows of shell commands for every stage.

Its cleanup hooks, and those of its rubric, write what they see to the journal (`PROBE_JOURNAL`, a JSONL file).
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import verifiers.v1 as vf
from opencode_rubrics import Rubric, RubricConfig, cleanup, live_rubric
from probe_journal import note  # type: ignore[import-not-found]  # beside this file on PYTHONPATH

__all__ = ["ProbeTaskset"]


class ProbeData(vf.TaskData):
    """Shell commands per stage; an empty one is skipped."""

    before: str = ""
    after: str = ""
    check: str = "true"
    hook: Literal["sound", "raises", "hangs"] = "sound"


class ProbeRubricConfig(RubricConfig):
    """No options."""

    type: str = "probe_tasks:ProbeRubric"


class ProbeRubric(Rubric[ProbeRubricConfig]):
    """Scores nothing; has a hook."""

    @cleanup(priority=10)
    async def note_rubric(self, task: ProbeData, trace: Any, runtime: vf.Runtime) -> None:
        await note("rubric", task, trace, runtime)

    async def teardown(self) -> None:
        await note("teardown", None, None, None)


class ProbeTask(vf.Task[ProbeData]):
    """Runs its row's commands in the sandbox."""

    @property
    def rubric(self) -> Rubric[Any]:
        return live_rubric(ProbeRubricConfig())

    async def setup(self, trace: Any, runtime: vf.Runtime) -> None:
        await self._shell(self.data.before, runtime)

    async def finalize(self, trace: Any, runtime: vf.Runtime) -> None:
        await self._shell(self.data.after, runtime)

    @vf.reward
    async def checked(self, runtime: vf.Runtime) -> float:
        return 1.0 if await self._shell(self.data.check, runtime, may_fail=True) == 0 else 0.0

    @cleanup(priority=20, timeout=4.0)
    async def note_task(self, task: ProbeData, trace: Any, runtime: vf.Runtime) -> None:
        await note("task", task, trace, runtime)
        if task.hook == "raises":
            raise RuntimeError("this hook raises")
        if task.hook == "hangs":
            await asyncio.sleep(600)

    async def _shell(self, command: str, runtime: vf.Runtime, *, may_fail: bool = False) -> int:
        if not command:
            return 0
        result = await runtime.run(["sh", "-c", command], {})
        if result.exit_code != 0 and not may_fail:
            raise vf.TaskError(f"{command!r} failed: {result.stderr}")
        return result.exit_code


class ProbeTasksetConfig(vf.TasksetConfig):
    """Where the rows are."""

    rows: str = ""
    """A JSONL file of `ProbeData`."""


class ProbeTaskset(vf.Taskset[ProbeTask, ProbeTasksetConfig]):
    """The rows of a file."""

    def load(self) -> Iterator[ProbeTask]:
        for line in Path(self.config.rows).read_text().rstrip("\n").split("\n"):
            yield ProbeTask(ProbeData.model_validate(json.loads(line)), self.config.task)
