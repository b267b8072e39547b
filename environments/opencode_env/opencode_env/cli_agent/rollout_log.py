"""The one log line that a finished rollout leaves."""

from opencode_env.cli_agent.traces import AGENT_RECORD, AnyTrace, tool_counts


def describe_rollout(trace: AnyTrace, seconds: float) -> str:
    """Turns, tool counts, stop, exit code, duration (s), reward and error of a finished rollout, in one line."""
    tools = ",".join(f"{name}:{count}" for name, count in sorted(tool_counts(trace).items())) or "-"
    record = trace.info.get(AGENT_RECORD, {})
    error = trace.last_error
    reward = "-" if not trace.ok else f"{trace.reward:.3f}"
    problem = f"{error.type}: {error.message.partition(chr(10))[0][:200]}" if error else "-"
    return (
        f"rollout finished: task={trace.task.data.id or trace.task.data.idx} turns={trace.num_turns} tools={tools} "
        f"stop={trace.stop_condition} exit={record.get('exit_code')} seconds={seconds:.1f} reward={reward} "
        f"error={problem}"
    )
