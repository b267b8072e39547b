"""Datasets as tasks for a coding agent."""

from opencode_env.errors import DatasetError
from opencode_env.taskset.config import OpenCodeTaskConfig, OpenCodeTasksetConfig
from opencode_env.taskset.data import OpenCodeTaskData
from opencode_env.taskset.task import OpenCodeTask, OpenCodeTaskset

__all__ = [
    "DatasetError",
    "OpenCodeTask",
    "OpenCodeTaskConfig",
    "OpenCodeTaskData",
    "OpenCodeTaskset",
    "OpenCodeTasksetConfig",
]
