"""The tool server of one rollout's world."""

import os
from pathlib import Path
from typing import Any

from opencode_simulation.toolset import SimulationToolset, own_log
from opencode_simulation.wire import Hello


class RolloutToolset(SimulationToolset):
    """Serves the tools and resources of one world, to whoever reaches its port: the one rollout's sandbox."""

    _rollout: str | None = None

    async def setup_task(self, task: Any) -> None:
        """Play the rollout's world: it is reset before the agent starts."""
        self._rollout = task.rollout
        port = int(Path(os.environ["MCP_PORT_FILE"]).read_text())
        self.connect(Hello(token=self.config.token, rollout=task.rollout, port=port, log=own_log()))
        await self._link.opened.wait()

    def rollout_of(self, query: str) -> str | None:
        return self._rollout


if __name__ == "__main__":
    RolloutToolset.run()
