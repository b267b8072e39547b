"""What `run_rollout` answers: the fields of OpenEnv 0.3.1's `opencode_env` in their meaning, and a trainer's beside
them.

Invariant: `reward` is None whenever the infrastructure failed the rollout or nothing was to be scored, and a finite
number otherwise.
"""

from typing import Any, Literal

from pydantic import BaseModel, Field

from opencode_openenv.training_trace import TrainingTrace


class RolloutTurn(BaseModel):
    """One model call."""

    turn: int
    """Position among the calls, from 1."""
    role: Literal["main", "sub"] = "main"
    """Who asked: the agent itself, or a model call below it."""
    finish_reason: str | None = None
    completion_tokens: list[str] = Field(default_factory=list)
    completion_token_ids: list[int] = Field(default_factory=list)
    per_token_logps: list[float] = Field(default_factory=list)
    """One for each token of `completion_tokens` or `completion_token_ids`, whichever there is."""
    latency_s: float = 0.0
    timestamp: float = 0.0
    """Start of the call, in seconds since 1970."""
    upstream_status: int | None = None
    upstream_error: dict[str, Any] | None = None


class CommandResult(BaseModel):
    """One setup or verify command."""

    cmd: str
    exit_code: int
    stdout: str = ""
    """The end of standard output, at most 2,000 characters."""
    stderr: str = ""
    duration_s: float = 0.0


class RolloutResult(BaseModel):
    """One rollout, whatever became of it."""

    task_id: str = ""
    sandbox_id: str = ""
    reward: float | None = None
    agent_exit_code: int | None = None
    wall_s: float = 0.0
    """Seconds from the call to this result, waiting for a place included."""
    mode: str = "transparent_proxy"
    setup_results: list[CommandResult] = Field(default_factory=list)
    verify_results: list[CommandResult] = Field(default_factory=list)
    proxy_turns: list[RolloutTurn] = Field(default_factory=list)
    """The model calls in order of their end; empty in the mode `black_box`."""
    files: dict[str, str] = Field(default_factory=dict)
    """Text by absolute path: of the work directory to depth 2, under 64 kB each, the first 32, 8,000 characters
    each."""
    files_extra: list[str] = Field(default_factory=list)
    """Paths of those that are not text."""
    agent_log_tail: str = ""
    proxy_log_tail: str = ""
    """The last model calls, a line each."""
    error: str | None = None
    """What failed, or that the agent's time was up."""

    stop_condition: str | None = None
    """How the rollout ended: `agent_completed`, `agent_timeout`, a limit, `error`, `refused`."""
    reward_note: str = ""
    """Why the reward is 0 although commands passed, such as a reward file beyond the bounds that were given."""
    training_trace: TrainingTrace | None = None
    training_trace_reason: str = ""
    """Why there is none."""
