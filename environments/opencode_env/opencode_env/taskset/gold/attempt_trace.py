"""The trace of an attempt without an agent."""

from typing import Any

import verifiers.v1 as vf
from opencode_rubrics import AnyTrace
from verifiers.v1.state import state_cls
from verifiers.v1.task import Task


def trace_for(task: Task[Any, Any, Any], seat: vf.AgentConfig) -> AnyTrace:
    """A trace of the task in which no agent has done anything."""
    recorded: Any = vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash)
    info = vf.AgentInfo(config=seat, name="check", trainable=False)
    return vf.Trace(task=recorded, state=state_cls(type(task))(), agent=info)
