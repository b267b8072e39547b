"""An agent that will never end by itself: it asks the model again for ever, or every call of it fails."""

import asyncio
from collections.abc import Sequence

from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.traces import AnyTrace

RUNAWAY_TURNS = 8
"""So many answers to one message in a row that lead nowhere: some agents ask again for ever when a stream names no
finish reason. More than the six sends of one call that a careful HTTP client makes."""

RUNAWAY_FAILURES = 30
"""So many failed calls in a row: several times what an agent's own retries of one call amount to."""

POLL_SECONDS = 0.5


async def until_runaway(trace: AnyTrace, first_call: int) -> None:
    """Return once the run whose first model call is number `first_call` will never end by itself."""
    while True:
        await asyncio.sleep(POLL_SECONDS)
        calls = own_calls(trace, first_call)
        turns = [call for call in calls[-RUNAWAY_FAILURES:] if call.node is not None]
        if is_runaway(calls, [led_nowhere(trace, call) for call in turns]):
            return


def is_runaway(calls: Sequence[ModelCall], nowhere: Sequence[int | None]) -> bool:
    """Whether an agent will never end by itself, by the model calls of this run so far, and by what `led_nowhere` says
    of each that became a turn."""
    last = nowhere[-RUNAWAY_TURNS:]
    idle = len(last) == RUNAWAY_TURNS and last[0] is not None and len(set(last)) == 1
    tail = calls[-RUNAWAY_FAILURES:]
    return idle or (len(tail) == RUNAWAY_FAILURES and all(call.error is not None for call in tail))


def led_nowhere(trace: AnyTrace, call: ModelCall) -> int | None:
    """The node of the user's or tool's message that a turn answers once more, None for a turn that leads somewhere. A
    turn leads nowhere when it calls no tool and either was asked for behind the agent's own answer, or named no finish
    reason. Whole answers to one prompt, however many, are samples."""
    nodes = trace.nodes
    assert call.node is not None
    turn = nodes[call.node]
    again = turn.parent is not None and nodes[turn.parent].message.role == "assistant"
    if getattr(turn.message, "tool_calls", None) or not (again or call.finish_reason is None):
        return None
    node = call.node
    while nodes[node].message.role == "assistant" and (parent := nodes[node].parent) is not None:
        node = parent
    return node
