"""The rows of a simulation's dataset, in our names or in those of its family.

Invariant: a row is checked when it is read; what is wrong is a `DatasetError` that names file, line and column.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
)

from opencode_env.simulation.episode import Seed
from opencode_env.simulation.user.asked import AskedUser
from opencode_env.taskset import DatasetError

_SEED: TypeAdapter[int] = TypeAdapter(Seed)


class SimulationRow(BaseModel):
    """One episode: which world it starts from, and how the agent is asked."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    id: str | None = None
    seed: Seed | None = None
    """None: the world is not seeded, and no two episodes need be the same."""
    config: dict[str, JsonValue] = Field({}, validation_alias=AliasChoices("config", "environment_context"))
    """Laid on the world's `default_config()`. A `seed` in it is the row's where the row has none of its own."""
    prompt: str | None = Field(None, validation_alias=AliasChoices("prompt", "user_prompt_template"))
    """Template of the prompt; `{observation}` is the first observation. None: the world's own."""
    system_prompt: str | None = None
    user_simulation: dict[str, JsonValue] | None = None
    """The simulated user, as `AskedUser` has it, for environments that have a seat for one."""
    max_steps: int | None = Field(None, ge=1)
    """Steps after which the episode is truncated; goes before the taskset's."""
    answer: str | None = None
    """For a rubric that compares answers."""
    verify: list[str] = []
    """For a rubric that runs commands in the sandbox."""
    info: dict[str, JsonValue] = {}
    """Anything else."""

    @field_validator("user_simulation")
    @classmethod
    def _can_be_played(cls, value: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if value is not None:
            AskedUser.model_validate(value)
        return value


def read_rows(path: Path) -> Iterator[SimulationRow]:
    """The rows of a JSONL file.

    Raises:
        DatasetError: there is no such file, or a row is wrong; the message names it.
    """
    # It needs pyarrow, which env-server workers, that only get task data, should not have to import.
    from opencode_env.taskset.sources.jsonl_file import JsonlFile

    if not path.is_file():
        raise DatasetError(f'dataset "{path}": there is no such file; a simulation reads one JSONL file')
    for row in JsonlFile(str(path)).rows(None):
        yield parse_row(row.place, dict(row.values))


def parse_row(place: str, values: dict[str, Any]) -> SimulationRow:
    """One row; `place` opens the error message.

    Raises:
        DatasetError: a column is unknown or has the wrong type.
    """
    try:
        row = SimulationRow.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        column = ".".join(map(str, problem["loc"]))
        shown = json.dumps(problem["input"], default=repr)[:200]
        raise DatasetError(f'{place}: column "{column}": {problem["msg"]} (it holds {shown})') from error
    if row.seed is None and (seed := row.config.get("seed")) is not None:
        try:
            return row.model_copy(update={"seed": _SEED.validate_python(seed)})
        except ValidationError:
            raise DatasetError(
                f'{place}: column "environment_context.seed" must be a whole number of 64 bits, not {seed!r}'
            ) from None
    return row
