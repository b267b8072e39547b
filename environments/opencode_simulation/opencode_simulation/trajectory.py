"""A rollout as a `Trajectory`, field by field that of eval-protocol, with what is known here beyond it in fields of
its own."""

from typing import Any

from opencode_env.cli_agent.traces import AnyTrace
from pydantic import BaseModel, JsonValue, TypeAdapter

from opencode_simulation.ledger import FINISH, TERMINATION_KEY, LedgerEntry, LedgerSummary, ledger_of

_ARGUMENTS = TypeAdapter(dict[str, JsonValue])


class MCPToolCall(BaseModel):
    tool_name: str
    arguments: dict[str, JsonValue]
    tool_call_id: str | None = None
    """The model's id of the call, where the call was the model's own; None for one that a program of the agent made."""


class DatasetRow(BaseModel):
    id: str
    seed: int | None
    system_prompt: str
    user_prompt_template: str
    environment_context: dict[str, JsonValue]
    user_simulation: dict[str, JsonValue] | None = None


class MCPSession(BaseModel):
    session_id: str
    base_url: str = ""
    """Empty: a world's server is gone with its rollout."""
    seed: int | None
    model_id: str
    dataset_row: DatasetRow
    terminated: bool
    last_observation: JsonValue


class Trajectory(BaseModel):
    """One episode: what was seen, done and given, step by step."""

    session: MCPSession
    observations: list[JsonValue]
    """The first one, and one after each action."""
    actions: list[str]
    """As `tool({arguments})`; `tool_calls` has them apart."""
    rewards: list[float]
    """One of each action, and that of the final state where the world gave one."""
    terminated: bool
    """Whether the world, the simulated user or a limit ended it."""
    total_reward: float
    steps: int
    duration: float
    """Seconds that the agent worked."""
    control_plane_steps: list[dict[str, JsonValue]]
    """What the agent did not see of each step: `step` (from 0), `reward`, `terminated`, `truncated`, `info`, and the
    actions as `tool_calls` and `num_tool_calls`, of which the final state has none."""
    control_plane_summary: dict[str, JsonValue]
    """`total_reward`, `termination_reason`, `final_step`, `control_plane_source` (the last step's info), and the
    ledger's own summary."""
    termination_reason: str
    """Empty where the agent just stopped."""
    conversation_history: list[dict[str, Any]]
    usage: dict[str, int]
    """Tokens of the rollout's model calls: `prompt_tokens`, `completion_tokens`, `total_tokens`."""
    llm_usage_summary: dict[str, int]
    """The same, under the name that older versions have."""
    tool_calls: list[MCPToolCall]
    """The actions, beyond eval-protocol's fields."""


def trajectory_of(trace: AnyTrace) -> Trajectory:
    """The trajectory of a finished rollout.

    Raises:
        ValueError: the rollout had no simulated world.
    """
    ledger = ledger_of(trace.info)
    if ledger is None:
        raise ValueError(f"trace {trace.id} has no simulated world (no trace.info['simulation'])")
    summary = ledger.summary
    taken = [entry for entry in ledger.steps if entry.tool != FINISH]
    observations = [summary.first_observation, *(entry.observation for entry in taken)]
    reason = str(trace.info.get(TERMINATION_KEY) or "")
    terminated = summary.terminated or summary.truncated or bool(reason)
    usage = _usage(trace)
    return Trajectory(
        session=_session(trace, summary, terminated, observations[-1]),
        observations=observations,
        actions=[_shown(entry) for entry in taken],
        rewards=[entry.reward for entry in ledger.steps],
        terminated=terminated,
        total_reward=summary.total_reward,
        steps=summary.steps,
        duration=max(0.0, trace.timing.agent.end - trace.timing.agent.start),
        control_plane_steps=[_unseen(entry) for entry in ledger.steps],
        control_plane_summary={
            **summary.model_dump(mode="json"),
            "termination_reason": reason,
            "final_step": len(ledger.steps) - 1,
            "control_plane_source": dict(ledger.steps[-1].info) if ledger.steps else {},
        },
        termination_reason=reason,
        conversation_history=[message.model_dump(mode="json", exclude_none=True) for message in trace.messages],
        usage=usage,
        llm_usage_summary=usage,
        tool_calls=_tool_calls(trace, taken),
    )


def _session(trace: AnyTrace, summary: LedgerSummary, terminated: bool, last: JsonValue) -> MCPSession:
    data = trace.task.data
    model = trace.agent.config.model if trace.agent is not None else None
    return MCPSession(
        session_id=trace.id,
        seed=summary.seed,
        model_id=model or "",
        dataset_row=DatasetRow(
            id=data.id or str(data.idx),
            seed=summary.seed,
            system_prompt=data.system_prompt or "",
            user_prompt_template=getattr(data, "prompt_template", None) or data.prompt_text,
            environment_context=getattr(data, "config", summary.config),
            user_simulation=getattr(data, "user_simulation", None),
        ),
        terminated=terminated,
        last_observation=last,
    )


def _tool_calls(trace: AnyTrace, steps: list[LedgerEntry]) -> list[MCPToolCall]:
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


def _shown(entry: LedgerEntry) -> str:
    """An action in eval-protocol's way."""
    return f"{entry.tool}({entry.arguments})"


def _unseen(entry: LedgerEntry) -> dict[str, JsonValue]:
    calls: list[JsonValue] = [] if entry.tool == FINISH else [_shown(entry)]
    said = entry.model_dump(mode="json", include={"reward", "terminated", "truncated", "info"})
    return {"step": entry.step - 1, **said, "tool_calls": calls, "num_tool_calls": len(calls)}


def _usage(trace: AnyTrace) -> dict[str, int]:
    used = [call.usage for call in trace.calls if call.usage is not None]
    prompt, completion = sum(one.input_tokens for one in used), sum(one.completion_tokens for one in used)
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
