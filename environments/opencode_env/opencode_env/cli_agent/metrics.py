"""Metrics of any CLI agent's rollout, counted from what the model really sampled.

Retried and failed calls are no turns. Sub-agents that share the main agent's trace are counted with it.
"""

from opencode_env.cli_agent.traces import AnyTrace, agent_record, tool_counts


def agent_metrics(trace: AnyTrace, *, agent_error: bool, context_overflow: bool) -> dict[str, float]:
    """The metrics of every agent, all present in every rollout: counts, and flags as 0 or 1."""
    counts = tool_counts(trace)
    messages = trace.assistant_messages
    last = messages[-1] if messages else None
    record = agent_record(trace)
    empty = last is not None and not (last.content or "").strip() and not last.tool_calls
    return {
        "num_turns": float(trace.num_turns),
        "agent_timeout": float(trace.stop_condition == "agent_timeout"),
        "agent_error": float(agent_error),
        "agent_survived": float(bool(record.get("survivors") or record.get("outlived"))),
        "limit_kills": float(sum(record.get("limit_kills", {}).values())),
        "context_overflow": float(context_overflow),
        "empty_answer": float(empty),
        "model_call_errors": float(sum(call.error is not None for call in trace.calls)),
        "total_tool_calls": float(counts.total()),
        "unique_tools_used": float(len(counts)),
        "has_tool_calls": float(bool(counts)),
    }
