"""A taskset and its environment as anybody writes them for verifiers: they know nothing of this repository."""

from collections.abc import Iterator
from typing import Any

import verifiers.v1 as vf

__all__ = ["PlainTaskset"]


class PlainTask(vf.Task[vf.TaskData]):
    """Scored by what the sandbox holds, and by what it cannot see of this machine."""

    @vf.reward
    async def written(self, runtime: vf.Runtime) -> float:
        """1.0 if the agent's command ran in the sandbox."""
        seen = await runtime.run(["sh", "-c", "cat /app/made.txt; id -u; cat /secret-of-the-host"], {})
        return float(seen.stdout.split() == ["hello", "1000"] and seen.exit_code != 0)


class PlainTaskset(vf.Taskset[PlainTask, vf.TasksetConfig]):
    """One row."""

    def load(self) -> Iterator[Any]:
        yield PlainTask(vf.TaskData(idx=0, prompt="Write hello to /app/made.txt."), self.config.task)
