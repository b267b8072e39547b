"""Was a run of OpenCode the policy's own doing, or did the machinery fail it?

The one place that draws the line. What the policy did (any answer, however bad; giving up; a full context window; a
refusal) is an `AgentOutcome` and is scored. What the machinery did to it is raised as the error type of the boundary
that broke and is never scored. OpenCode's exit code alone tells neither: it is 0 after some failures and 1 after some
ends that are the model's doing, so the calls that the interception recorded come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from verifiers.v1.errors import HarnessError, InterceptionError, ProviderError, RolloutError
from verifiers.v1.harnesses.utils.compaction import CONTEXT_OVERFLOW_MARKERS
from verifiers.v1.trace import Error, ModelCall

from opencode_env.opencode.events import RunLog

RUNAWAY_TURNS = 8
"""So many turns of one conversation in a row without a tool call: OpenCode asks again for ever when a stream names no
finish reason. More than the six sends of one call that OpenCode makes by itself."""

RUNAWAY_FAILURES = 30
"""So many failed calls in a row: five times what OpenCode's own retries of one call amount to."""


_TIMED_OUT = "The operation timed out."
"""OpenCode's words when `provider_timeout` is over. The interception is still waiting then and has recorded no call."""


class AgentOutcome(StrEnum):
    """How a sound run ended."""

    COMPLETED = "completed"
    """OpenCode exited by itself after the model's last answer."""
    STOPPED = "stopped"
    """A limit or a `@stop` refused the next turn; the trace's stop condition names it."""
    CONTEXT_WINDOW = "context_window"
    """The endpoint refused the request because the conversation no longer fits the model's window."""
    CONTENT_FILTER = "content_filter"
    """The endpoint ended the answer for its content."""


@dataclass(frozen=True)
class SegmentRecord:
    """What is known of one run of OpenCode."""

    exit_code: int
    calls: Sequence[ModelCall]
    """The model calls of this run, in order of their end."""
    stop_condition: str | None
    log: RunLog


def outcome_of(segment: SegmentRecord) -> AgentOutcome:
    """How a run ended, if that was the policy's doing.

    Raises:
        ProviderError: a model call failed or took too long, and OpenCode did not recover from it.
        InterceptionError: a model call failed on the way between OpenCode and the interception.
        HarnessError: OpenCode crashed, was killed, reported an error, or ended without a single model call.
    """
    if segment.stop_condition is not None:
        return AgentOutcome.STOPPED
    if segment.exit_code == 1 and segment.log.error is not None and segment.log.error.message == _TIMED_OUT:
        raise ProviderError(_describe(segment, "gave up waiting for the model (provider_timeout)"), status_code=504)
    if not segment.calls:
        raise HarnessError(_describe(segment, "ended without a single model call"))
    last = segment.calls[-1]
    if last.error is not None:
        if is_context_overflow(last.error):
            return AgentOutcome.CONTEXT_WINDOW
        raise as_exception(last.error)
    if segment.exit_code == 0 and segment.log.error is None:
        return AgentOutcome.COMPLETED
    if segment.exit_code == 1 and last.finish_reason is None and last.node is not None:
        return AgentOutcome.CONTENT_FILTER
    if segment.exit_code < 0 or segment.exit_code > 128:
        raise HarnessError(_describe(segment, "was killed or crashed"))
    raise HarnessError(_describe(segment, "reported an error"))


def is_context_overflow(error: Error) -> bool:
    """Whether a failed call says that the conversation outgrew the model's window (a 400 or 413 that names it)."""
    text = error.message.casefold()
    return error.status_code in (400, 413) and any(marker in text for marker in CONTEXT_OVERFLOW_MARKERS)


def is_runaway(calls: Sequence[ModelCall], conversations: Sequence[int | None]) -> bool:
    """Whether OpenCode will never end by itself.

    Args:
        calls: the model calls of this run so far.
        conversations: for each call that became a turn, what tells its conversation from those of sub-agents, or None
            when the turn called a tool.
    """
    last = conversations[-RUNAWAY_TURNS:]
    idle = len(last) == RUNAWAY_TURNS and last[0] is not None and len(set(last)) == 1
    tail = calls[-RUNAWAY_FAILURES:]
    return idle or (len(tail) == RUNAWAY_FAILURES and all(call.error is not None for call in tail))


def as_exception(error: Error) -> RolloutError:
    """The recorded failure of a model call as the exception of its boundary."""
    if error.type == "InterceptionError":
        return InterceptionError(error.message)
    return ProviderError(error.message, status_code=error.status_code or 502)


def _describe(segment: SegmentRecord, what: str) -> str:
    error = segment.log.error
    named = f": {error.name}: {error.message}" if error else ""
    tail = segment.log.tail(1500) or "<no output>"
    return f"OpenCode {what} (exit {segment.exit_code}){named}; the end of its log:\n{tail}"
