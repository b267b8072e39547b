"""The one log line that a finished rollout leaves."""

from collections import Counter
from typing import Any

from verifiers.v1.trace import Trace

AnyTrace = Trace[Any, Any, Any]

AGENT_RECORD = "agent"
"""Key in `trace.info` under which a CLI agent's harness records at least `exit_code`."""


def tool_counts(trace: AnyTrace) -> Counter[str]:
    """How often the model called each tool, by lower-case name, whether or not the tool exists."""
    return Counter(call.name.lower() for message in trace.assistant_messages for call in message.tool_calls or [])


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
