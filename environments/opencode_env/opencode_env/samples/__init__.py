"""The shipped sample tasks: ten small real exercises in `tasks.jsonl`, one row each.

Ids are stable (results of runs are joined by them), and no row's checks pass before the task is worked on.
"""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, field_validator

SAMPLES_PATH = Path(__file__).with_name("tasks.jsonl")
"""The rows, in the schema of `OpenCodeTaskset`."""


class Sample(BaseModel):
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


def load_samples() -> tuple[Sample, ...]:
    lines = SAMPLES_PATH.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return tuple(map(Sample.model_validate_json, lines))
