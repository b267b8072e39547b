"""What `run_rollout` answers: the fields of OpenEnv 0.3.1's `opencode_env` in their meaning, a trainer's beside them.

The training trace is OpenEnv's, schema version 1, and keeps what `openenv.core.harness.training` of 0.10 checks.
"""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

Role = Literal["main", "sub"]


class RolloutTurn(BaseModel):
    """One model call."""

    turn: int
    """Position among the calls, from 1."""
    role: Role = "main"
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


class RolloutCommand(BaseModel):
    """One setup or verify command."""

    cmd: str
    exit_code: int
    stdout: str = ""
    """The end of standard output, at most 2,000 characters."""
    stderr: str = ""
    duration_s: float = 0.0


class TrainingTurn(BaseModel, extra="forbid"):
    """One model call, token for token."""

    node_id: str
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    """1 for each completion token that trains; over prompt and completion. Those of the role `sub` train where the
    server includes them (`--include-sub-llm-in-trajectory`)."""
    request: dict[str, Any] = Field(default_factory=dict)
    response: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    """`role` (main or sub), `parent` (the node before it whose tokens this prompt continues, or None), and `program`:
    whether a program that the agent started made the call, whose tokens then do not train."""


class TrainingTrace(BaseModel, extra="forbid"):
    """The calls of a rollout in the order of their answers, those of the role `sub` after the others."""

    schema_version: Literal[1] = 1
    turns: list[TrainingTurn]


class RolloutResult(BaseModel):
    """One rollout, whatever became of it."""

    task_id: str = ""
    sandbox_id: str = ""
    reward: float | None = None
    """None where the infrastructure failed the rollout or nothing was to be scored, else a finite number."""
    agent_exit_code: int | None = None
    wall_s: float = 0.0
    """Seconds from the call to this result, waiting for a place included."""
    mode: str = "transparent_proxy"
    setup_results: list[RolloutCommand] = Field(default_factory=list)
    verify_results: list[RolloutCommand] = Field(default_factory=list)
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


@dataclass(frozen=True)
class FlatSequence:
    """One prompt, and all that came after it, for trainers that know nothing else, such as TRL's `rollout_func`; the
    last three lists are as long as each other.

    What that shape cannot say is decided here: of a rollout with forks the branch of the last answer is kept, because
    it is the one whose end was scored; calls of sub-agents and of programs are not part of it; a rollout without a
    reward, or without token ids, has no sequence, because a reward of 0 would teach that the infrastructure's failure
    was the policy's.
    """

    prompt_ids: list[int]
    completion_ids: list[int]
    logprobs: list[float]
    """0.0 for a token that was not sampled."""
    env_mask: list[int]
    """1 for a token that the policy sampled, 0 for one of a tool's result or of the template."""
    dropped_turns: int
    """Sampled answers that are not in it: of other branches, sub-agents and programs."""


def flat_sequence(result: RolloutResult) -> FlatSequence | None:
    """The rollout as one sequence; None where it must not be trained on."""
    if result.reward is None or result.training_trace is None:
        return None
    turns = {turn.node_id: turn for turn in result.training_trace.turns if turn.metadata.get("role") == "main"}
    own = [turn for turn in turns.values() if any(turn.loss_mask)]
    if not own:
        return None
    branch = [own[-1]]
    while (before := turns.get(branch[0].metadata["parent"] or "")) is not None:
        branch.insert(0, before)
    prompt, last = branch[0].prompt_token_ids, branch[-1]
    whole = [*last.prompt_token_ids, *last.completion_token_ids]
    logprobs, mask = [0.0] * len(whole), [0] * len(whole)
    for turn in branch:
        start, end = len(turn.prompt_token_ids), len(turn.prompt_token_ids) + len(turn.completion_token_ids)
        logprobs[start:end], mask[start:end] = turn.per_token_logps, turn.loss_mask[start:]
    return FlatSequence(
        prompt_ids=prompt,
        completion_ids=whole[len(prompt) :],
        logprobs=logprobs[len(prompt) :],
        env_mask=mask[len(prompt) :],
        dropped_turns=len(result.training_trace.turns) - len(branch),
    )
