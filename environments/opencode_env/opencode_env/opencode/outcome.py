"""Was a run of OpenCode the policy's own doing, or did the infrastructure fail it?

The one place that draws the line for OpenCode until its model has called a tool; from then on `cli_agent.outcome_rule`
judges what is raised here once more. What the policy did (any answer, however bad; giving up; a full context window; a
refusal) is an `AgentOutcome` and is scored. What the infrastructure did to it is raised as the error type of the
boundary that broke and is never scored. OpenCode's exit code alone tells neither: it is 0 after some failures and 1
after some ends that are the model's doing, so the calls that the interception recorded come first.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from verifiers.v1.errors import HarnessError, ProviderError
from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.interception.conversations import history_forks
from opencode_env.cli_agent.outcome_rule import overflowed, require_model_calls
from opencode_env.cli_agent.traces import AnyTrace, tool_counts
from opencode_env.opencode.events import RunLog
from opencode_env.opencode.harness_config import BUILT_IN_TOOLS

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
    overdue: bool = True
    """Whether a model call may have been under way for as long as OpenCode waits."""


def outcome_of(segment: SegmentRecord) -> AgentOutcome:
    """How a run ended, if that was the policy's doing.

    Raises:
        ProviderError: a model call failed or took too long, and OpenCode did not recover from it.
        InterceptionError: a model call failed on the path between OpenCode and the interception.
        HarnessError: OpenCode crashed, was killed, reported an error, or ended without a single model call.
    """
    if segment.stop_condition is not None:
        return AgentOutcome.STOPPED
    error = segment.log.error
    if segment.overdue and segment.exit_code == 1 and error is not None and error.message == _TIMED_OUT:
        raise ProviderError(_describe(segment, "gave up waiting for the model (provider_timeout)"), status_code=504)
    require_model_calls(segment.calls, _state(segment))
    if overflowed(segment.calls):
        return AgentOutcome.CONTEXT_WINDOW
    last = segment.calls[-1]
    if segment.exit_code == 0 and segment.log.error is None:
        return AgentOutcome.COMPLETED
    if segment.exit_code == 1 and last.finish_reason is None and last.node is not None:
        return AgentOutcome.CONTENT_FILTER
    if segment.exit_code < 0 or segment.exit_code > 128:
        raise HarnessError(_describe(segment, "was killed or crashed"))
    raise HarnessError(_describe(segment, "reported an error"))


def _describe(segment: SegmentRecord, what: str) -> str:
    return f"OpenCode {what} {_state(segment)}"


def _state(segment: SegmentRecord) -> str:
    error = segment.log.error
    named = f": {error.name}: {error.message}" if error else ""
    tail = segment.log.tail(1500) or "<no output>"
    return f"(exit {segment.exit_code}){named}; the end of its log:\n{tail}"


def rollout_metrics(trace: AnyTrace) -> dict[str, float]:
    """How often the model called each of OpenCode's own tools that it was offered, and how often the history of a
    conversation changed."""
    counts, offered = tool_counts(trace), {tool.name.lower() for node in trace.nodes for tool in node.tools}
    tools = {f"{tool}_calls": float(counts[tool]) for tool in BUILT_IN_TOOLS if tool in offered}
    return {**tools, "history_forks": history_forks(trace)}
