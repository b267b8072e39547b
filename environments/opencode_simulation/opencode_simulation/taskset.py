"""The taskset: a simulation's rows as tasks. A wrong one is a `DatasetError` that names file, line and column."""

import json
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import verifiers.v1 as vf
from opencode_env.asked_user import AskedUser
from opencode_env.taskset import DatasetError
from opencode_env.taskset.data import named_turns
from pydantic import (
    AliasChoices,
    BaseModel,
    Field,
    JsonValue,
    TypeAdapter,
    ValidationError,
    field_validator,
    model_validator,
)

from opencode_simulation.episode import Seed
from opencode_simulation.parity import require_parity
from opencode_simulation.plain_json import MAX_INTEGER, MIN_INTEGER
from opencode_simulation.reference import find_world
from opencode_simulation.task import SimulationTask, SimulationTaskConfig, SimulationTaskData, server_config
from opencode_simulation.toolset import SimulationToolset
from opencode_simulation.world import World

_SEED: TypeAdapter[int] = TypeAdapter(Seed)
_PROMPTS = ("question", "instruction", "query", "task", "problem", "user_prompt", "messages")


class SimulationTasksetConfig(vf.TasksetConfig):
    """Sets which episodes are played."""

    task: SimulationTaskConfig = SimulationTaskConfig()
    dataset: Path | None = None
    """A file of rows, JSONL or a JSON array. None: `episodes` rows with nothing but a seed, or the shipped rows of a
    shipped world."""
    episodes: int | None = Field(None, ge=1)
    """Rows to make, with the seeds `first_seed`, `first_seed` + 1, … None: 8, if there is neither a file nor a shipped
    world's rows."""
    first_seed: int = Field(0, ge=MIN_INTEGER, le=MAX_INTEGER)
    """Seed of the first row that is made."""
    prompt: str | None = None
    """Template of the prompt of rows without one. None: the world's own."""

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.dataset is not None and self.episodes is not None:
            raise ValueError("dataset and episodes exclude each other: the file's rows say which episodes are played")
        if self.first_seed + self.episode_count - 1 > MAX_INTEGER:
            raise ValueError(f"first_seed {self.first_seed} leaves fewer than {self.episode_count} seeds of 64 bits")
        return self

    @property
    def episode_count(self) -> int:
        """Return how many rows are made where neither a file nor shipped ones are taken."""
        return self.episodes or 8


class SimulationRow(BaseModel, extra="forbid", frozen=True):
    """One episode: how its world starts, and how the agent is asked."""

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
    """What a rubric that compares answers compares with."""
    verify: list[str] = []
    """What a rubric that runs commands in the sandbox runs."""
    info: dict[str, JsonValue] = {}
    """Anything else."""

    @field_validator("user_simulation")
    @classmethod
    def _can_be_played(cls, value: dict[str, JsonValue] | None) -> dict[str, JsonValue] | None:
        if value is not None:
            AskedUser.model_validate(value)
        return value


def read_rows(path: Path, config_keys: Collection[str] = ()) -> Iterator[SimulationRow]:
    """The rows of a JSONL file, or of a JSON array; `config_keys` are what the world can be configured with. A
    `DatasetError` names the row that is wrong."""
    if not path.is_file():
        raise DatasetError(
            f'dataset "{path}": there is no such file; a simulation reads one file, JSONL or a JSON array'
        )
    with path.open("rb") as file:
        whole = file.read(4096).removeprefix(b"\xef\xbb\xbf").lstrip()[:1] == b"["
    for place, values in _of_array(path) if whole else _of_lines(path):
        yield parse_row(place, values, config_keys)


def _of_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    # It needs pyarrow, which env-server workers, that only get task data, should not have to import.
    from opencode_env.taskset.sources import JsonlFile

    for row in JsonlFile(str(path)).rows(None):
        yield row.place, dict(row.values)


def _of_array(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        rows = json.loads(path.read_text(encoding="utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path}: it begins as a JSON array and is not one: {error}") from error
    for number, values in enumerate(rows, 1):
        if not isinstance(values, dict):
            raise DatasetError(f"{path} row {number}: a JSON object is needed, not {type(values).__name__}")
        yield f"{path} row {number}", values


def _belongs(column: Sequence[int | str], config_keys: Collection[str]) -> str:
    """Return where a key belongs that is not a row's."""
    name = str(column[-1])
    if column[0] == "user_simulation":
        return f"a user has {', '.join(AskedUser.model_fields)}"
    if name in AskedUser.model_fields:
        return 'it is the user\'s: write it in "user_simulation"'
    if name in config_keys:
        return 'it configures the world: write it in "config" (or "environment_context")'
    if name in _PROMPTS:
        return 'what the agent is asked is the column "prompt" (or "user_prompt_template")'
    known = ", ".join(SimulationRow.model_fields)
    return f'a row has {known}; settings of the world belong in "config", and anything else in "info"'


def parse_row(place: str, values: dict[str, Any], config_keys: Collection[str] = ()) -> SimulationRow:
    """One row; `place` opens the message of a `DatasetError`, `config_keys` is what can be configured."""
    try:
        row = SimulationRow.model_validate(values)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        column = ".".join(map(str, problem["loc"]))
        shown = json.dumps(problem["input"], default=repr)[:200]
        hint = f"; {_belongs(problem['loc'], config_keys)}" if problem["type"] == "extra_forbidden" else ""
        raise DatasetError(f'{place}: column "{column}": {problem["msg"]} (it holds {shown}){hint}') from error
    if row.seed is None and (seed := row.config.get("seed")) is not None:
        try:
            return row.model_copy(update={"seed": _SEED.validate_python(seed)})
        except ValidationError:
            raise DatasetError(
                f'{place}: column "environment_context.seed" must be a whole number of 64 bits, not {seed!r}'
            ) from None
    return row


# verifiers bounds the task parameter by `Task` without arguments, whose invariant config excludes every subclass.
class SimulationTaskset(vf.Taskset[SimulationTask, SimulationTasksetConfig]):  # type: ignore[type-var]
    """Episodes of one world; see `SimulationTasksetConfig`."""

    @classmethod
    def toolsets(cls, config: SimulationTasksetConfig) -> list[vf.Toolset[Any, Any]]:
        """The shared server, if the worlds share one; refuses a world that its production server differs from."""
        require_parity(find_world(config.task.world))
        return [SimulationToolset(server_config(config.task))] if config.task.server == "shared" else []

    def load(self) -> Iterator[SimulationTask]:
        """Yield the tasks in the rows' order; a `DatasetError` where the dataset cannot be read, or a row is wrong."""
        if (turns := named_turns(self.config.dataset, SimulationTaskData)) is not None:
            yield from (SimulationTask(data, self.config.task) for data in turns)
            return
        world = find_world(self.config.task.world)
        for row in self._rows(world):
            fields = row.model_dump(exclude={"prompt"})
            prompt = row.prompt or self.config.prompt or world.PROMPT
            yield SimulationTask(SimulationTaskData(prompt=prompt, **fields), self.config.task)

    def _rows(self, world: type[World]) -> Iterator[SimulationRow]:
        shipped = Path(__file__).parent / "samples" / f"{self.config.task.world}.jsonl"
        if self.config.dataset is not None:
            yield from read_rows(self.config.dataset, world.default_config().keys())
        elif self.config.episodes is None and shipped.is_file():
            yield from read_rows(shipped)
        else:
            first = self.config.first_seed
            for seed in range(first, first + self.config.episode_count):
                yield SimulationRow(id=f"{self.config.task.world}-{seed}", seed=seed)
