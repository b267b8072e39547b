"""Which outcome a run of an agent is: conditions in the order in which they are asked, one for each row.

Nobody outside the sandbox can watch what ends a program inside, so the line is drawn by who could have done it: before
the model has called a tool no program of the agent's exists, and a failure is the machinery's; from then on it is only
on evidence that nothing in the sandbox can make (`outcome_rule`). A new outcome is a row of `outcomes` and a condition
here. Invariant: what raises is an error and is never scored; what returns is the policy's doing and is.
"""

import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from agent_sandbox.prime.errors import SandboxEndedError
from agent_sandbox.toolbox.alive import require_alive
from verifiers.v1.errors import HarnessError, RolloutError, SandboxError, TaskError, TunnelError
from verifiers.v1.runtimes import Runtime
from verifiers.v1.trace import ModelCall

from opencode_env.cli_agent.interception.gateway import refused_last
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.interception.tunnel import require_tunnel
from opencode_env.cli_agent.model_failure import overflowed, require_model_calls
from opencode_env.cli_agent.outcome_rule import Evidence, endpoint_failure
from opencode_env.cli_agent.outcomes import AgentError, AgentErrors, Outcome
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.startup import NOT_STARTED
from opencode_env.cli_agent.traces import AnyTrace, agent_record

OWN_ERROR = "own_error"
"""Key of the agent's record: what the agent broke its own run with."""

_REASON_CHARACTERS = 4000
_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_STAGES = ("setup", "finalize", "scoring")


@runtime_checkable
class CountsLimitKills(Protocol):
    """A sandbox that ends what reaches its own limits."""

    async def limit_kills(self) -> dict[str, int]:
        """How many processes were ended, by limit: `memory`, …"""
        ...

    def kills_below_limits(self) -> int:
        """How many the kernel ended for want of memory though no limit of the sandbox's was reached."""
        ...


@dataclass
class EndedRun:
    """One run of an agent that has ended: what is known of it, and what can be asked now."""

    rollout: Rollout
    trace: AnyTrace
    runtime: Runtime
    harness: Any
    """Its configuration."""
    first_call: int
    """Number of its first model call."""
    problem: RolloutError | None
    """How it broke."""
    agent_errors: AgentErrors = "score"

    @property
    def calls(self) -> Sequence[ModelCall]:
        """Those of the agent's own program."""
        return own_calls(self.trace, self.first_call)


Condition = Callable[[EndedRun], Awaitable[RolloutError | bool | None]]
"""Whether an outcome is the run's; an error to raise is one that is."""


def has_called_tool(trace: AnyTrace) -> bool:
    """Whether a program of the agent's can have run: the model called a tool, or spoke to an agent that offers it none
    and acts on what it says."""
    said = trace.assistant_messages
    return any(message.tool_calls for message in said) or (bool(said) and not trace.tools)


async def classify(run: EndedRun) -> Outcome:
    """How a run ended; a stop is put on its trace.

    Raises:
        RolloutError: the type of the boundary that broke.
    """
    for outcome, holds in AFTER_A_RUN:
        found = await holds(run)
        if isinstance(found, RolloutError):
            if found is run.problem:
                raise found
            raise found from run.problem
        if found:
            if outcome.row.stop:
                run.trace.stop(outcome.row.stop)
            return outcome
    return Outcome.COMPLETED


async def _request_refused(run: EndedRun) -> bool:
    return run.problem is not None and refused_last(run.trace) and bool(run.trace.calls[run.first_call :])


async def _context_full(run: EndedRun) -> bool:
    return run.trace.stop_condition is None and overflowed(run.calls)


async def _stopped(run: EndedRun) -> bool:
    return run.trace.stop_condition is not None


async def _tunnel_lost(run: EndedRun) -> RolloutError | None:
    try:
        await require_tunnel(run.rollout.tunnel, doubted=run.problem is not None)
    except TunnelError as error:
        return error
    return None


async def _sound(run: EndedRun) -> bool:
    if run.problem is None:
        try:
            require_model_calls(run.calls, f"(exit {agent_record(run.trace).get('exit_code')})")
        except RolloutError as error:
            run.problem = error
    return run.problem is None


async def _failed_before_tools(run: EndedRun) -> RolloutError | None:
    return None if has_called_tool(run.trace) else run.problem


async def _hook_failed(run: EndedRun) -> RolloutError | None:
    left = run.rollout.take_failure()
    return left if isinstance(left, TaskError) else None


async def _endpoint_failed(run: EndedRun) -> RolloutError | None:
    return endpoint_failure(Evidence.of(run.trace, run.first_call, run.harness))


async def _killed_for_memory(run: EndedRun) -> RolloutError | None:
    """The agent's program was killed while this machine's kernel ended processes of its sandbox for want of memory, and
    the agent had not reached a limit of its own, at which it can aim."""
    runtime = run.runtime
    if agent_record(run.trace).get("exit_code") not in _KILLED or not isinstance(runtime, CountsLimitKills):
        return None
    try:
        if (await runtime.limit_kills()).get("memory") or not runtime.kills_below_limits():
            return None
    except SandboxError:
        return None
    return HarnessError(f"{run.problem}\nprocesses were killed for want of memory meanwhile")


async def _sandbox_gone(run: EndedRun) -> RolloutError | None:
    try:
        await require_alive(run.runtime, "the agent ran")
    except RolloutError as error:
        return error
    return None


async def _unscored_break(run: EndedRun) -> RolloutError | None:
    if run.agent_errors != "error":
        return None
    return AgentError(f"{run.problem}\nthe agent's own programs could have done that")


async def _broke(run: EndedRun) -> bool:
    agent_record(run.trace)[OWN_ERROR] = f"{type(run.problem).__name__}: {run.problem}"[:_REASON_CHARACTERS]
    return True


AFTER_A_RUN: Sequence[tuple[Outcome, Condition]] = (
    (Outcome.REQUEST_REFUSED, _request_refused),
    (Outcome.CONTEXT_FULL, _context_full),
    (Outcome.LIMIT, _stopped),
    (Outcome.TUNNEL_LOST, _tunnel_lost),
    (Outcome.COMPLETED, _sound),
    (Outcome.AGENT_FAILED, _failed_before_tools),
    (Outcome.STAGE_TIMEOUT, _hook_failed),
    (Outcome.ENDPOINT_FAILED, _endpoint_failed),
    (Outcome.AGENT_FAILED, _killed_for_memory),
    (Outcome.SANDBOX_GONE, _sandbox_gone),
    (Outcome.AGENT_ERROR, _unscored_break),
    (Outcome.AGENT_BROKE, _broke),
)
"""The conditions of a run's outcome; the first that holds is it."""


def require_scorable(trace: AnyTrace) -> None:
    """Refuse a score that the agent could still be changing, or whose agent ran out of time for want of a model.

    Raises:
        SandboxError: processes of the agent are left in the sandbox; a `SandboxEndedError` where its own programs can
            have kept them from being ended, which is not tried again.
        HarnessError: the time was over before the agent's first model call.
        ProviderError: the time was over while the endpoint failed the agent's calls.
        InterceptionError: the same, while they failed on the way to the endpoint.
    """
    record = agent_record(trace)
    if survivors := record.get("survivors"):
        kind = SandboxEndedError if record.get("survivors_own") else SandboxError
        raise kind(f"not scored, the agent's processes could not be ended: {survivors}")
    if trace.stop_condition != Outcome.AGENT_TIMEOUT.row.stop:
        return
    if record.get(NOT_STARTED) and not has_called_tool(trace):
        raise HarnessError("the agent's time was over before its first model call (--env.agent.timeout.rollout)")
    if not (calls := own_calls(trace)):
        return
    if not has_called_tool(trace):
        require_model_calls(calls, "when its time was over")
        return
    harness = trace.agent.config.harness if trace.agent is not None else None
    failure = endpoint_failure(Evidence.of(trace, 0, harness, time_over=trace.timing.agent.end))
    if failure is not None:
        raise failure


def fail_stage_timeout(trace: AnyTrace) -> None:
    """Turn an expired setup, finalize or scoring deadline, which verifiers records as a clean stop, into an error.

    Only the agent's own time limit is the policy's doing.
    """
    stage = (trace.stop_condition or "").removesuffix("_timeout")
    if not trace.ok or stage not in _STAGES or not trace.is_timeout:
        return
    error = TaskError(f"{stage} did not finish within its deadline (--env.agent.timeout.{stage}); nothing was scored")
    trace.record_error(error)


def unscore_failed(trace: AnyTrace) -> None:
    """Take the rewards off a trace that holds an error, those too that were given before it happened."""
    if not trace.ok:
        trace.rewards = dict.fromkeys(trace.rewards)
