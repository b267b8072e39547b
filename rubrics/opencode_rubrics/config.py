"""The configuration that names a rubric.

A task carries this and nothing else of its rubric: tasks are copied and travel between processes, live
rubrics do not (see `registry`).
"""

from pydantic import field_serializer
from pydantic_config import BaseConfig


class RubricConfig(BaseConfig):
    """Base of all rubric configurations."""

    type: str = ""
    """The id of the rubric that scores (see `any_rubric`). A configuration that was read keeps the id that it was read
    by, so that another process finds the same rubric."""

    @field_serializer("type")
    def _as_read(self, value: str) -> str:
        # A subclass that narrows `type` to a literal would warn about the id that somebody else gave its rubric.
        return value

    def resolved(self) -> "RubricConfig":
        """The configuration that the rubric itself gets: this one, unless it stands for another."""
        return self
