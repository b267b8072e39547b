"""Configuration of a simulation (`--env.taskset.*`, `--env.taskset.task.*`)."""

from pathlib import Path
from typing import Literal, Self

import verifiers.v1 as vf
from opencode_rubrics import AnyRubricConfig, EnvironmentReturnConfig
from pydantic import Field, field_validator, model_validator

from opencode_simulation.plain_json import MAX_INTEGER, MIN_INTEGER
from opencode_simulation.reference import find_world


class SimulationTaskConfig(vf.TaskConfig):
    """Which world is played, where it runs and how it is scored."""

    world: str = "frozen-lake"
    """A shipped world (`frozen-lake`, `issue-tracker`, `order-desk`), or `module:Class`."""
    server: Literal["rollout", "shared"] = "rollout"
    """`rollout`: a server process for each rollout's world. `shared`: one for all worlds of an environment's process,
    which saves each rollout the start of Python and shares the processor between worlds."""
    max_steps: int | None = Field(None, ge=1)
    """Steps after which an episode is truncated; a row's own goes before it. None: no limit but the world's, and that
    of the ledger, which ends an episode that fills it (16 MiB; about 4000 steps, however short)."""
    call_timeout: float = Field(60.0, gt=0, allow_inf_nan=False)
    """Seconds that one call of a world's methods may take."""
    rubric: AnyRubricConfig = EnvironmentReturnConfig()
    """The rubric that scores; `group` puts others beside `environment-return`."""

    @field_validator("world")
    @classmethod
    def _there_is_such_a_world(cls, value: str) -> str:
        find_world(value)
        return value


class SimulationTasksetConfig(vf.TasksetConfig):
    """Which episodes are played."""

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
        """How many rows are made where neither a file nor shipped ones are taken."""
        return self.episodes or 8
