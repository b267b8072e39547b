"""The one log line that a rollout leaves, finished or failed."""

from typing import Any

from verifiers.v1.episode import Episode

from opencode_env.cli_agent.traces import AGENT_RECORD, AnyTrace, tool_counts


def describe_rollout(trace: AnyTrace, seconds: float) -> str:
    """Turns, tool counts, stop, exit code, duration (s), reward and error of a finished rollout, in one line."""
    tools = ",".join(f"{name}:{count}" for name, count in sorted(tool_counts(trace).items())) or "-"
    record = trace.info.get(AGENT_RECORD, {})
    error = trace.last_error
    reward = "-" if not trace.ok else f"{trace.reward:.3f}"
    problem = f"{error.type}: {error.message.partition(chr(10))[0][:200]}" if error else "-"
    return _in_one_line(
        f"rollout finished: task={trace.task.data.id or trace.task.data.idx} turns={trace.num_turns} tools={tools} "
        f"stop={trace.stop_condition} exit={record.get('exit_code')} seconds={seconds:.1f} reward={reward} "
        f"error={problem}"
    )


def describe_failure(episode: Episode[Any, Any, Any]) -> str:
    """Type and message of what ended a rollout outside of its agent's run, such as a sandbox that did not start."""
    told = (f"{error.type}: {error.message}" for error in episode.errors)
    return _in_one_line(f"rollout failed: task={episode.task.data.id or episode.task.data.idx} error={'; '.join(told)}")


def _in_one_line(text: str) -> str:
    """Whoever names a task or calls a tool writes no further lines."""
    return " ".join(text.split())
