"""What every part says about a rollout's trace: its type, the agent's record on it, tool calls, and the log line."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from verifiers.v1.episode import Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Trace

AnyTrace = Trace[Any, Any, Any]

_VERIFIERS_LINE = "rollout done: id=%s task=%s reward=%.3f turns=%d stop=%s"

AGENT_RECORD = "agent"
"""Key in `trace.info` under which the agent's run is recorded."""


def lineage(nodes: Sequence[MessageNode], node: int | None) -> Iterator[int]:
    """A node of a trace and those that it stands on, up to the root."""
    while node is not None:
        yield node
        node = nodes[node].parent


def tool_counts(trace: AnyTrace) -> Counter[str]:
    """How often the model called each tool, by lower-case name, whether or not the tool exists."""
    return Counter(call.name.lower() for message in trace.assistant_messages for call in message.tool_calls or [])


def agent_record(trace: AnyTrace) -> dict[str, Any]:
    """What is recorded of the agent's run: exit code, segments, duration (s), survivors, whether the agent can have
    kept them alive (`survivors_own`) or they were ended with all else (`outlived`), processes killed at the sandbox's
    limits, what it broke its own run with (`own_error`), how its programs used up the time of scoring
    (`scoring_overrun`), and what its harness adds."""
    record: dict[str, Any] = trace.info.setdefault(AGENT_RECORD, {})
    return record


def shorten_tasks(episode: Episode[Any, Any, Any]) -> None:
    """Leave of each recorded task what its data say is to stand on a trace; nobody makes a sandbox of it any more."""
    for recorded in (episode.task, *(trace.task for trace in episode.traces)):
        shorten = getattr(recorded.data, "recorded", None)
        if shorten is not None:
            recorded.data = shorten()


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


@contextmanager
def one_reward_logged() -> Iterator[None]:
    """Take the reward out of verifiers' line of a rollout until the end of the block: it is written before it is known
    what becomes of an error, and the line of `describe_rollout` has the reward."""
    verifiers_logger = logging.getLogger("verifiers.v1.rollout")
    verifiers_logger.addFilter(_without_reward)
    try:
        yield
    finally:
        verifiers_logger.removeFilter(_without_reward)


def _without_reward(record: logging.LogRecord) -> bool:
    if record.msg == _VERIFIERS_LINE and isinstance(record.args, tuple):
        record.msg = _VERIFIERS_LINE.replace(" reward=%.3f", "")
        record.args = (*record.args[:2], *record.args[3:])
    return True


def describe_failure(episode: Episode[Any, Any, Any]) -> str:
    """Type and message of what ended a rollout outside of its agent's run, such as a sandbox that did not start."""
    told = (f"{error.type}: {error.message}" for error in episode.errors)
    return _in_one_line(f"rollout failed: task={episode.task.data.id or episode.task.data.idx} error={'; '.join(told)}")


def _in_one_line(text: str) -> str:
    """Whoever names a task or calls a tool writes no further lines."""
    return " ".join(text.split())
