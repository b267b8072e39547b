"""What every part says about a rollout's trace: its type, the agent's record on it, tool calls, and the log line."""

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from opencode_runs.console_command import in_one_line
from opencode_runs.traces.record import HistoryRecord
from opencode_runs.trainable.samples import recorded_parts, untrained_answers
from rollout_sandbox.told import task_name, without_credentials
from rollout_sandbox.toolbox.command import CommandResult
from verifiers.v1.episode import Episode
from verifiers.v1.graph import MessageNode
from verifiers.v1.trace import Trace
from verifiers.v1.types import AssistantMessage

from opencode_env.compat import send_again

AnyTrace = Trace[Any, Any, Any]

_VERIFIERS_LINES = {
    "rollout start: id=%s task=%s harness=%s runtime=%s": None,
    "rollout done: id=%s task=%s reward=%.3f turns=%d stop=%s": 2,
}
"""Those of a rollout, whose second value is the task's number, with the place of a reward among the values."""

OF_THE_RUN = {"of_the_run": True}
"""`extra` of a warning that is true of a whole run, and given once: its user is told, whatever shows the log."""

AGENT_RECORD = "agent"
"""Key in `trace.info` under which the agent's run is recorded."""


def lineage(nodes: Sequence[MessageNode], node: int | None) -> Iterator[int]:
    """A node of a trace and those that it stands on, up to the root."""
    while node is not None:
        yield node
        node = nodes[node].parent


def mask(node: MessageNode) -> None:
    """Let nothing of a node train. Which experts its tokens were routed to stays, as for those of any prompt."""
    node.mask = [False] * len(node.mask)
    node.logprobs = []
    node.advantages = node.reference_logprobs = node.trainer_logprobs = node.entropies = None
    node.sampling_mask = node.loss_weights = None


async def mask_untrained(trace: AnyTrace) -> None:
    """Mask the sections and summaries of a rollout that has ended which are not to train, wherever they were sent."""
    untrained = untrained_answers(recorded_parts(trace))
    for number in untrained:
        mask(trace.nodes[number])
    if untrained:
        await send_again(trace)


def tool_counts(trace: AnyTrace) -> Counter[str]:
    """Return how often the model called each tool, by lower-case name, whether or not the tool exists."""
    return Counter(call.name.lower() for message in trace.assistant_messages for call in message.tool_calls or [])


def last_answer(trace: AnyTrace) -> AssistantMessage | None:
    """Return the newest of a rollout's answers, summaries left out; None without any."""
    summaries = {one.node for one in HistoryRecord.of(trace.info).summaries}
    kept = (node.message for at, node in reversed([*enumerate(trace.nodes)]) if node.sampled and at not in summaries)
    return next((message for message in kept if isinstance(message, AssistantMessage)), None)


def name_reply(trace: AnyTrace) -> None:
    """Take for the agent's reply what it said before a summary, where that was sampled last."""
    answer = last_answer(trace)
    if trace.root_reply is None and answer is not next(iter(trace.assistant_messages[-1:]), None):
        trace.root_reply = "" if answer is None else answer.content or ""


def agent_record(trace: AnyTrace) -> dict[str, Any]:
    """Return what is recorded of the agent's run: exit code, segments, duration (s), survivors, whether the agent can
    have kept them alive (`survivors_own`) or they were ended with all else (`outlived`), processes killed at the
    sandbox's limits, what it broke its own run with (`own_error`), how its programs used up the time of scoring
    (`scoring_overrun`), the seconds of the whole rollout (`rollout_seconds`), the address of the cluster's node that
    played it (`node`), and what its harness adds."""
    record: dict[str, Any] = trace.info.setdefault(AGENT_RECORD, {})
    return record


def shorten_tasks(episode: Episode[Any, Any, Any]) -> None:
    """Leave of each recorded task what its data say is to stand on a trace; nobody makes a sandbox of it any more."""
    for recorded in (episode.task, *(trace.task for trace in episode.traces)):
        shorten = getattr(recorded.data, "recorded", None)
        if shorten is not None:
            recorded.data = shorten()


def describe_rollout(trace: AnyTrace, seconds: float) -> str:
    """Turns, tool counts, stop, exit code, duration (s), reward, error and the first verify command that failed of a
    finished rollout, in one line."""
    tools = ",".join(f"{name}:{count}" for name, count in sorted(tool_counts(trace).items())) or "-"
    record = trace.info.get(AGENT_RECORD, {})
    error = trace.last_error
    reward = "-" if not trace.ok else f"{trace.reward:.3f}"
    problem = f"{error.type}: {error.message.partition(chr(10))[0][:200]}" if error else "-"
    line = in_one_line(
        f"rollout finished: task={task_name(trace.task.data)} turns={trace.num_turns} tools={tools} "
        f"stop={trace.stop_condition} exit={record.get('exit_code')} seconds={seconds:.1f} reward={reward} "
        f"error={problem}{_failed_command(trace)}"
    )
    return without_credentials(line)


def _failed_command(trace: AnyTrace) -> str:
    failed = [result for record in trace.info.get("verify", ()) if not (result := CommandResult(**record)).ok]
    more = f" (and {len(failed) - 1} more)" if len(failed) > 1 else ""
    return f" failed={failed[0].command[:100]!r}: {failed[0].ending(200)}{more}" if failed else ""


@contextmanager
def our_words_logged(names: Mapping[Any, str]) -> Iterator[None]:
    """Have verifiers' lines of a rollout call its task as ours do, until the end of the block, and say no reward: that
    is written before it is known what becomes of an error, and the line of `describe_rollout` has it.

    Args:
        names: of the tasks, by their numbers.
    """

    def reworded(record: logging.LogRecord) -> bool:
        if record.msg in _VERIFIERS_LINES and isinstance(record.args, tuple):
            reward = _VERIFIERS_LINES[record.msg]
            record.msg = record.msg.replace(" reward=%.3f", "")
            values = (record.args[0], names.get(record.args[1], record.args[1]), *record.args[2:])
            record.args = tuple(value for place, value in enumerate(values) if place != reward)
        return True

    verifiers_logger = logging.getLogger("verifiers.v1.rollout")
    verifiers_logger.addFilter(reworded)
    try:
        yield
    finally:
        verifiers_logger.removeFilter(reworded)


def describe_failure(episode: Episode[Any, Any, Any]) -> str:
    """Type and message of what ended a rollout outside of its agent's run, such as a sandbox that did not start."""
    told = (f"{error.type}: {error.message}" for error in episode.errors)
    line = in_one_line(f"rollout failed: task={task_name(episode.task.data)} error={'; '.join(told)}")
    return without_credentials(line)
