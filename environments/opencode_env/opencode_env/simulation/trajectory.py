"""A rollout as a `Trajectory`, in the words of trainers that know the family of eval-protocol."""

from typing import Any

from pydantic import BaseModel, JsonValue, TypeAdapter

from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.simulation.ledger import LedgerEntry, TerminationReason, ledger_of
from opencode_env.simulation.termination import TERMINATION_KEY

_ARGUMENTS = TypeAdapter(dict[str, JsonValue])


class MCPToolCall(BaseModel):
    """One action."""

    tool_name: str
    arguments: dict[str, JsonValue]
    tool_call_id: str | None = None
    """The model's id of the call, where the call was the model's own; None for one that a program of the agent made."""


class DatasetRow(BaseModel):
    """The row that was played."""

    id: str
    seed: int | None
    system_prompt: str
    user_prompt_template: str
    environment_context: dict[str, JsonValue]
    user_simulation: dict[str, JsonValue] | None = None


class MCPSession(BaseModel):
    """Whose episode it was."""

    session_id: str
    seed: int | None
    model_id: str
    dataset_row: DatasetRow


class LLMUsageStats(BaseModel):
    """Tokens of the rollout's model calls."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Trajectory(BaseModel):
    """One episode: what was seen, done and given, step by step."""

    session: MCPSession
    observations: list[JsonValue]
    """The first one, and one after each action."""
    actions: list[MCPToolCall]
    rewards: list[float]
    terminated: bool
    total_reward: float
    steps: int
    duration: float
    """Seconds that the agent worked."""
    control_plane_steps: list[dict[str, JsonValue]]
    """What the agent did not see of each step: `reward`, `terminated`, `truncated`, `info`."""
    control_plane_summary: dict[str, JsonValue]
    termination_reason: TerminationReason | None
    conversation_history: list[dict[str, Any]]
    llm_usage_summary: LLMUsageStats


def trajectory_of(trace: AnyTrace) -> Trajectory:
    """The trajectory of a finished rollout.

    Raises:
        ValueError: the rollout had no simulated world.
    """
    ledger = ledger_of(trace.info)
    if ledger is None:
        raise ValueError(f"trace {trace.id} has no simulated world (no trace.info['simulation'])")
    summary, data = ledger.summary, trace.task.data
    row = DatasetRow(
        id=data.id or str(data.idx),
        seed=summary.seed,
        system_prompt=data.system_prompt or "",
        user_prompt_template=getattr(data, "prompt_template", None) or data.prompt_text,
        environment_context=getattr(data, "config", summary.config),
        user_simulation=getattr(data, "user_simulation", None),
    )
    model = trace.agent.config.model if trace.agent is not None else None
    return Trajectory(
        session=MCPSession(session_id=trace.id, seed=summary.seed, model_id=model or "", dataset_row=row),
        observations=[summary.first_observation, *(entry.observation for entry in ledger.steps)],
        actions=_actions(trace, ledger.steps),
        rewards=[entry.reward for entry in ledger.steps],
        terminated=summary.terminated or summary.truncated,
        total_reward=summary.total_reward,
        steps=summary.steps,
        duration=max(0.0, trace.timing.agent.end - trace.timing.agent.start),
        control_plane_steps=[_unseen(entry) for entry in ledger.steps],
        control_plane_summary=summary.model_dump(mode="json"),
        termination_reason=trace.info.get(TERMINATION_KEY),
        conversation_history=[message.model_dump(mode="json", exclude_none=True) for message in trace.messages],
        llm_usage_summary=_usage(trace),
    )


def _actions(trace: AnyTrace, steps: list[LedgerEntry]) -> list[MCPToolCall]:
    """The steps, each with the model's next call of that tool, if there is one."""
    calls = [call for message in trace.assistant_messages for call in message.tool_calls or []]
    actions = []
    for entry in steps:
        found = next((index for index, call in enumerate(calls) if _same(call, entry)), None)
        call_id = None if found is None else calls.pop(found).id
        actions.append(MCPToolCall(tool_name=entry.tool, arguments=entry.arguments, tool_call_id=call_id))
    return actions


def _same(call: Any, entry: LedgerEntry) -> bool:
    """Whether a call of the model's is the one that took a step: the tool's name ends it, and its arguments agree."""
    try:
        given = _ARGUMENTS.validate_json(call.arguments or "{}")
    except ValueError:
        return False
    right = call.name == entry.tool or call.name.endswith(f"_{entry.tool}")
    return right and all(entry.arguments.get(name) == value for name, value in given.items())


def _unseen(entry: LedgerEntry) -> dict[str, JsonValue]:
    return entry.model_dump(mode="json", include={"step", "reward", "terminated", "truncated", "info"})


def _usage(trace: AnyTrace) -> LLMUsageStats:
    used = [call.usage for call in trace.calls if call.usage is not None]
    prompt, completion = sum(one.input_tokens for one in used), sum(one.completion_tokens for one in used)
    return LLMUsageStats(prompt_tokens=prompt, completion_tokens=completion, total_tokens=prompt + completion)
