"""The rows of the shipped samples, with all their columns."""

from opencode_env.samples import SAMPLES_PATH
from pydantic import BaseModel, ConfigDict, JsonValue, field_validator


class SampleRow(BaseModel):
    """One row; `setup` and `verify` are lists of commands for `sh -c`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    question: str
    topic: str
    """What the exercise is about, in one word."""
    answer: str | None = None
    """The right answer, for a row without `verify`: what /app/answer.txt shall hold, unless `rubric` says otherwise."""
    rubric: dict[str, JsonValue] | None = None
    """The configuration of the rubric that scores, if it is not the one that fits the other fields."""
    setup: tuple[str, ...] = ()
    verify: tuple[str, ...] = ()
    gold: str | dict[str, str] | None = None
    """The right solution of a row without an answer, for `opencode-check-tasks`."""

    @field_validator("setup", "verify", mode="before")
    @classmethod
    def _one_command_is_a_list_of_one(cls, value: object) -> object:
        return (value,) if isinstance(value, str) else value


def sample_rows() -> tuple[SampleRow, ...]:
    lines = SAMPLES_PATH.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return tuple(map(SampleRow.model_validate_json, lines))
