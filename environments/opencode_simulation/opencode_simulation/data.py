"""The data of one simulated task: what travels to workers and lands on the trace."""

import verifiers.v1 as vf
from opencode_runs.turns.kept import TurnRow
from pydantic import Field, JsonValue


class SimulationTaskData(vf.TaskData):
    """One episode of a world. The prompt is a template until the world has been reset, and the filled one after."""

    seed: int | None = None
    config: dict[str, JsonValue] = Field(default_factory=dict)
    """The row's own, without the world's defaults."""
    max_steps: int | None = None
    user_simulation: dict[str, JsonValue] | None = None
    answer: str | None = None
    verify: list[str] = Field(default_factory=list)
    verify_timeout: float | None = None
    kept_turn: TurnRow | None = None
    """The kept turn that rollouts of the task go on from."""
    info: dict[str, JsonValue] = Field(default_factory=dict)
    prompt_template: str | None = None
    """What `prompt` was before the first observation filled it."""
    rollout: str | None = None
    """While its world's server starts: the rollout's id."""
