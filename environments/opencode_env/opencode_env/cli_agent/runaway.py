"""An agent that gets nowhere: a start that parks, and a run that will never end by itself.

A program that sits before its first model call, for ever, is ended and started once more. Nothing of the
first start lives when the second begins, and a start that made a model call is not repeated. A run that asks the model
again for ever, or whose every call fails, is ended.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence

from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.interception.callers import own_calls
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace, agent_record

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

PARKED_STARTS = "parked_starts"
"""Key of the agent's record: how many starts made no model call in time; absent when none."""
NOT_STARTED = "ended_before_its_first_call"
"""Key of the agent's record: the run's time was over while it was starting; absent when not."""


async def run_started(
    run: Callable[[bool], Awaitable[ProgramResult]], trace: AnyTrace, fence: ProcessFence, seconds: float
) -> ProgramResult:
    """Run an agent's program to its end; it has `seconds` for its first model call, unless it ends before.

    Args:
        run: starts the program; True is for the second time, when what the first start left is to be undone.
        trace: the rollout's; its calls come to our server, and `AgentProgram.new_run` was called for this run.

    Raises:
        HarnessError: neither start made a model call in time.
        SandboxError: the first could not be ended, or the sandbox is gone.
    """
    program = rollout_of(trace).program
    for again in (False, True):
        running = asyncio.ensure_future(run(again))
        called = asyncio.ensure_future(program.called.wait())
        try:
            await asyncio.wait({running, called}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if running.done() or called.done():
                return await running
        except asyncio.CancelledError:
            if not program.called.is_set():
                agent_record(trace)[NOT_STARTED] = True
            raise
        finally:
            for task in (running, called):
                task.cancel()
            await asyncio.gather(running, called, return_exceptions=True)
        await fence.end_run()
        record = agent_record(trace)
        record[PARKED_STARTS] = record.get(PARKED_STARTS, 0) + 1
        logger.warning("no model call within %g s of the agent's start: id=%s, it was ended", seconds, trace.id)
        if program.called.is_set():  # while it was being ended: what that call did cannot be undone
            break
    raise HarnessError(
        f"no model call within {seconds:g} s of the agent's start, nor of a second one: its program sits there. On a "
        "machine that is slow or full, raise --env.agent.harness.startup-time or run fewer rollouts at once; else look "
        "at what it waits for (--env.agent.harness.log-dir keeps its log)"
    )


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
