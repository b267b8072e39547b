"""A tool server for the tests: it adds numbers up in the rollout's state. `python -m` runs it on its own."""

from typing import Any

import verifiers.v1 as vf

from tests.support.tasks import SeenTask


class TallyState(vf.State):
    """The rollout's state, shared with the tool server."""

    total: int = 0


class Tally(vf.Toolset[vf.ToolsetConfig, TallyState]):
    """One tool, `tally_add`."""

    @vf.tool
    async def add(self, number: int) -> str:
        """Add a number to the total, and say the total."""
        self.state.total += number
        return f"the total is {self.state.total}"


class TallyTask(SeenTask[TallyState]):
    """A task with the tool server on the host."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset[Any, Any]]:
        return [Tally(vf.ToolsetConfig(colocated=False))]

    @vf.metric
    async def total(self, trace: vf.Trace[Any, TallyState, Any]) -> float:
        return float(trace.state.total)


class ColocatedTallyTask(TallyTask):
    """A task with the tool server in the agent's own sandbox."""

    @classmethod
    def toolsets(cls, config: vf.TaskConfig) -> list[vf.Toolset[Any, Any]]:
        return [Tally(vf.ToolsetConfig(colocated=True))]


if __name__ == "__main__":
    Tally.run()
