"""A task that looks into the sandbox around the agent and always scores 1. Tool servers import it: verifiers only."""

from typing import Any

import verifiers.v1 as vf
from typing_extensions import TypeVar
from verifiers.v1.runtimes import Runtime

PROMPT = "Do what the script says."

StateT = TypeVar("StateT", bound=vf.State, default=vf.State)


class SeenData(vf.TaskData):
    """A task with shell commands around the agent."""

    before: str = ""
    """Runs in the sandbox before the agent."""
    after: str = ""
    """Runs in the sandbox after the agent; its output is `trace.info["seen"]`."""
    env: dict[str, str] = {}
    """Environment of every command in the sandbox."""


class SeenTask(vf.Task[SeenData, StateT]):
    """Scores 1 whenever scoring happens at all."""

    def runtime_env(self) -> dict[str, str]:
        return self.data.env

    async def setup(self, trace: vf.Trace[Any, Any, Any], runtime: Runtime) -> None:
        if self.data.before:
            result = await runtime.run(["sh", "-c", self.data.before], {})
            assert result.exit_code == 0, result.stderr

    async def finalize(self, trace: vf.Trace[Any, Any, Any], runtime: Runtime) -> None:
        if self.data.after:
            result = await runtime.run(["sh", "-c", self.data.after], {})
            trace.info["seen"] = result.stdout

    @vf.reward
    async def worked(self) -> float:
        return 1.0


def seen_data(**fields: Any) -> SeenData:
    """The task's data, with a prompt unless the fields say otherwise."""
    return SeenData(**{"idx": 0, "prompt": PROMPT, **fields})
