"""What a world's server process is told, from the configuration of its tasks."""

import hashlib
import os
import sys

from opencode_simulation.config import SimulationTaskConfig
from opencode_simulation.hub import hub
from opencode_simulation.reference import find_world, world_name
from opencode_simulation.toolset import SimulationToolsetConfig


def server_config(config: SimulationTaskConfig) -> SimulationToolsetConfig:
    """The configuration of the server of one rollout's world, or of the shared one."""
    return SimulationToolsetConfig(
        world=config.world,
        name=world_name(find_world(config.world)),
        socket=hub().path,
        token=hub().token,
        group=shared_group(config) if config.server == "shared" else None,
        import_path=[os.path.abspath(path) for path in sys.path],
    )


def shared_group(config: SimulationTaskConfig) -> str:
    """What a shared server and the tasks whose worlds it serves have in common."""
    return hashlib.sha256(config.model_dump_json().encode()).hexdigest()
