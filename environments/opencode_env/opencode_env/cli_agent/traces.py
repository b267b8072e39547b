"""What every part says about a rollout's trace: its type, the agent's record on it, and its tool calls."""

from collections import Counter
from typing import Any

from verifiers.v1.trace import Trace

AnyTrace = Trace[Any, Any, Any]

AGENT_RECORD = "agent"
"""Key in `trace.info` under which the agent's run is recorded."""


def tool_counts(trace: AnyTrace) -> Counter[str]:
    """How often the model called each tool, by lower-case name, whether or not the tool exists."""
    return Counter(call.name.lower() for message in trace.assistant_messages for call in message.tool_calls or [])


def agent_record(trace: AnyTrace) -> dict[str, Any]:
    """What is recorded of the agent's run: exit code, segments, duration (s), survivors, whether the agent can have
    kept them alive (`survivors_own`) or they were ended with all else (`outlived`), processes killed at the sandbox's
    limits, and what its harness adds."""
    record: dict[str, Any] = trace.info.setdefault(AGENT_RECORD, {})
    return record
