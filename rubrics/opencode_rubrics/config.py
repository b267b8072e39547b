"""The configuration that names a rubric.

A task carries this and nothing else of its rubric: tasks are copied and travel between processes, live
rubrics do not (see `registry`).
"""

from pydantic import field_serializer
from pydantic_config import BaseConfig


class RubricConfig(BaseConfig):
    """Base of all rubric configurations."""

    type: str = ""
    """Which rubric scores: one of those that ship, the name of another package's entry point, or `module:Class`. None
    here: the one that fits the row. An id stays as it was written, so that another process finds the same rubric."""

    @field_serializer("type")
    def _as_read(self, value: str) -> str:
        # A subclass that narrows `type` to a literal would warn about the id that somebody else gave its rubric.
        return value

    def resolved(self) -> "RubricConfig":
        """The configuration that the rubric itself gets: this one, unless it stands for another."""
        return self
