"""A start that parks: a program that sits before its first model call, for ever, is ended and started once more.

Invariant: nothing of the first start lives when the second begins, and a start that made a model call is not repeated.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from verifiers.v1.errors import HarnessError
from verifiers.v1.runtimes import ProgramResult

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
        fence: ends the program with all that it started.
        seconds: as the option `startup_time` says.

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
