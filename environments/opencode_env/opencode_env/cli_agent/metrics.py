"""Metrics of any CLI agent's rollout, counted from what the model really sampled.

Retried and failed calls are not turns. Sub-agents that share the main agent's trace are counted with it.
"""

from collections.abc import Collection

from verifiers.v1.errors import RolloutError

from opencode_env.cli_agent.classification import outcomes_at_the_end
from opencode_env.cli_agent.interception.gateway import PARTIAL, RECORD, REPEATED
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.outcomes import Outcome, flags_of_outcomes
from opencode_env.cli_agent.traces import AnyTrace, agent_record, tool_counts


def agent_metrics(trace: AnyTrace, error: RolloutError | None, ended: Collection[Outcome] = ()) -> dict[str, float]:
    """The metrics of every agent, all present in every rollout: counts, and flags as 0 or 1.

    Args:
        error: what broke the agent's run.
        ended: the outcomes of its runs.
    """
    counts = tool_counts(trace)
    messages = trace.assistant_messages
    last = messages[-1] if messages else None
    record = agent_record(trace)
    gateway = trace.info.get(RECORD, {})
    empty = last is not None and not (last.content or "").strip() and not last.tool_calls
    return {
        "num_turns": float(trace.num_turns),
        "agent_error": float(error is not None),
        **flags_of_outcomes({*ended, *outcomes_at_the_end(trace)}),
        "limit_kills": float(sum(record.get("limit_kills", {}).values())),
        "empty_answer": float(empty),
        "program_calls": float(len(trace.calls) - len(own_calls(trace))),
        "repeated_calls": float(gateway.get(REPEATED, 0)),
        "ghost_answers": float(gateway.get(PARTIAL, 0)),
        "model_call_errors": float(sum(call.error is not None for call in trace.calls)),
        "total_tool_calls": float(counts.total()),
        "unique_tools_used": float(len(counts)),
        "has_tool_calls": float(bool(counts)),
    }
