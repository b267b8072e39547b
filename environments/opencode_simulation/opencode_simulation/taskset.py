"""The taskset: a simulation's rows as tasks."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import verifiers.v1 as vf

from opencode_simulation.config import SimulationTasksetConfig
from opencode_simulation.data import SimulationTaskData
from opencode_simulation.parity import require_parity
from opencode_simulation.reference import find_world
from opencode_simulation.rows import SimulationRow, read_rows
from opencode_simulation.server_config import server_config
from opencode_simulation.task import SimulationTask
from opencode_simulation.toolset import SimulationToolset

_SHIPPED_ROWS = Path(__file__).parent / "samples"


# verifiers bounds the task parameter by `Task` without arguments, whose invariant config excludes every subclass.
class SimulationTaskset(vf.Taskset[SimulationTask, SimulationTasksetConfig]):  # type: ignore[type-var]
    """Episodes of one world; see `SimulationTasksetConfig`."""

    @classmethod
    def toolsets(cls, config: SimulationTasksetConfig) -> list[vf.Toolset[Any, Any]]:
        """The shared server, if the worlds share one. Asked for when the environment starts.

        Raises:
            ToolMismatchError: the world is not what the production server is that it names.
            SignatureMismatchError: the same.
            ValueError: that server cannot be asked.
        """
        require_parity(find_world(config.task.world))
        return [SimulationToolset(server_config(config.task))] if config.task.server == "shared" else []

    def load(self) -> Iterator[SimulationTask]:
        """Yield the tasks in the rows' order.

        Raises:
            DatasetError: the dataset cannot be read, or a row is wrong.
        """
        world = find_world(self.config.task.world)
        for row in self._rows():
            fields = row.model_dump(exclude={"prompt"})
            prompt = row.prompt or self.config.prompt or world.PROMPT
            yield SimulationTask(SimulationTaskData(prompt=prompt, **fields), self.config.task)

    def _rows(self) -> Iterator[SimulationRow]:
        shipped = _SHIPPED_ROWS / f"{self.config.task.world}.jsonl"
        if self.config.dataset is not None:
            world = find_world(self.config.task.world)
            yield from read_rows(self.config.dataset, world.default_config().keys())
        elif self.config.episodes is None and shipped.is_file():
            yield from read_rows(shipped)
        else:
            first = self.config.first_seed
            for seed in range(first, first + self.config.episode_count):
                yield SimulationRow(id=f"{self.config.task.world}-{seed}", seed=seed)
