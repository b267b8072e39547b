"""The configuration that names a rubric.

A task carries this and nothing else of its rubric: tasks are copied and travel between processes, live
rubrics do not (see `registry`).
"""

from pydantic_config import BaseConfig


class RubricConfig(BaseConfig):
    """Base of all rubric configurations."""

    type: str
    """Which rubric scores. A subclass narrows it to one literal, by which a config file or the command line
    (`--env.taskset.task.rubric.type`) picks the class."""

    def resolved(self) -> "RubricConfig":
        """The configuration that a rubric class is registered for: this one, unless it stands for another."""
        return self
