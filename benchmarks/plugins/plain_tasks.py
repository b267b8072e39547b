"""A taskset without any part of ours: a prompt, and a shell command in the sandbox that tells whether it was done."""

import json
from collections.abc import Iterator
from pathlib import Path

import verifiers.v1 as vf

__all__ = ["PlainTaskset"]


class PlainData(vf.TaskData):
    """One row."""

    check: str = "true"


class PlainTask(vf.Task[PlainData]):
    """Rewards a row whose command succeeds."""

    @vf.reward
    async def checked(self, runtime: vf.Runtime) -> float:
        """1 when the row's command exits with 0."""
        result = await runtime.run(["sh", "-c", self.data.check], {})
        return float(result.exit_code == 0)


class PlainTasksetConfig(vf.TasksetConfig):
    """Where the rows are."""

    rows: str = ""
    """A JSONL file of `PlainData`."""


class PlainTaskset(vf.Taskset[PlainTask, PlainTasksetConfig]):
    """The rows of a file."""

    def load(self) -> Iterator[PlainTask]:
        """One task per line."""
        for line in Path(self.config.rows).read_text().rstrip("\n").split("\n"):
            yield PlainTask(PlainData.model_validate(json.loads(line)), self.config.task)
