"""Which outcome a run of an agent is: conditions in the order in which they are asked, one for each row.

Nobody outside the sandbox can watch what ends a program inside, so the line is drawn by who could have done it: before
the model has called a tool no program of the agent's exists, and a failure is the infrastructure's; from then on it is
only on evidence that nothing in the sandbox can make (`outcome_rule`). A new outcome is a row of `outcomes` and a
condition here; all else follows. Invariant: what raises is never scored; what returns is the policy's doing and is.
An agent whose processes outran their end, or whose programs used the time of scoring, is rewarded nothing and is not an
error: everything in its sandbox ended before anything was scored.
"""

import contextlib
import signal
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from opencode_rubrics.rubric import UNREADABLE, pay_nothing
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.prime.errors import SandboxEndedError
from rollout_sandbox.toolbox.checked_run import require_alive
from verifiers.v1.episode import Episode
from verifiers.v1.errors import (
    HarnessError,
    ProviderError,
    RolloutError,
    SandboxError,
    TaskError,
    stop_condition,
)
from verifiers.v1.runtimes import Runtime
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.types import Message

from opencode_env.cli_agent.interception.gateway import GATEWAY_RECORD, LAST_REFUSED
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.interception.tunnel import require_tunnel
from opencode_env.cli_agent.outcome_rule import (
    Evidence,
    endpoint_failure,
    is_context_overflow,
    is_refusal,
    overflowed,
    require_model_calls,
)
from opencode_env.cli_agent.outcomes import NO_ANSWER, AgentError, AgentErrors, Outcome
from opencode_env.cli_agent.progress import NOT_STARTED
from opencode_env.cli_agent.rollout import Rollout, rollout_of
from opencode_env.cli_agent.traces import AnyTrace, agent_record

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_STAGES = ("setup", "finalize", "scoring")


@dataclass
class EndedRun:
    """One run of an agent that has ended: what is known of it, and what can be asked now."""

    rollout: Rollout
    trace: AnyTrace
    harness: Any
    """Its configuration."""
    first_call: int = 0
    """Number of its first model call."""
    problem: RolloutError | None = None
    """How it broke."""
    runtime: Runtime | None = None
    """The sandbox; None for a condition that is asked before scoring."""
    agent_errors: AgentErrors = "score"
    time_over: float | None = None
    """When the time limit ended it, if that did."""
    outcome: Outcome | None = None
    """Which it is, once that is known."""

    @property
    def calls(self) -> Sequence[ModelCall]:
        """Those of the agent's own program; without what the end of its time cut off."""
        own = own_calls(self.trace, self.first_call)
        if self.time_over is None:
            return own
        return [call for call in own if call.error is None or call.error.type != "CancelledError"]


Found = RolloutError | bool | None


@dataclass(frozen=True)
class Condition:
    """When a run has this outcome."""

    outcome: Outcome
    holds: Callable[[EndedRun], Found | Awaitable[Found]]
    """Whether it is the run's; an error to raise is one that is."""
    time_over: bool = False
    """Whether it is also asked, before scoring, of a run that its time limit ended; `holds` awaits nothing then."""


def has_called_tool(trace: AnyTrace) -> bool:
    """Whether a program of the agent's can have run in this sandbox: the model called a tool, or spoke to an agent that
    offers it none and acts on what it says."""
    said = _sampled(trace)
    return any(getattr(message, "tool_calls", None) for message in said) or (bool(said) and not trace.tools)


def has_answered(trace: AnyTrace) -> bool:
    """Whether the policy has done anything in this rollout, which is also one whose process ended and was resumed."""
    continued = rollout_of(trace).continued
    return bool(_sampled(trace)) or (continued is not None and continued.resumed)


def _sampled(trace: AnyTrace) -> list[Message]:
    """The answers of the agent's model. What stands before a kept turn that the rollout goes on from was said in
    another sandbox."""
    continued = rollout_of(trace).continued
    own = trace.nodes if continued is None else trace.nodes[continued.seeded :]
    return [node.message for node in own if node.sampled]


async def classify(run: EndedRun) -> None:
    """Say on a run how it ended; a stop is put on its trace.

    Raises:
        RolloutError: the type of the boundary that broke.
    """
    for condition in AFTER_A_RUN:
        found = condition.holds(run)
        if isawaitable(found):
            found = await found
        if found:
            _ended(run, condition.outcome, found)
            return


def _ended(run: EndedRun, outcome: Outcome, found: Any) -> None:
    """What follows from a condition that holds: an error is raised, a stop is put on the trace."""
    run.outcome = outcome
    if isinstance(found, RolloutError):
        if found is run.problem:
            raise found
        run.rollout.take_failure()  # which verifiers would prefer
        if run.time_over is None:  # else verifiers would take the error for what a stop does to an agent
            run.trace.stop_condition, run.trace.is_completed = None, False
        raise found from run.problem
    if outcome.row.stop:
        run.trace.stop(outcome.row.stop)


def _not_started(run: EndedRun) -> RolloutError | None:
    program, watched = run.rollout.program, run.time_over is not None and run.rollout.gateway is not None
    unasked = watched and not (run.calls or program.is_waiting or program.cut_off)
    if has_answered(run.trace) or not (unasked or agent_record(run.trace).get(NOT_STARTED)):
        return None
    return HarnessError("the agent's time was over before its first model call (--env.agent.timeout.rollout)")


def _no_answer(run: EndedRun) -> RolloutError | None:
    """Nothing that the policy could do came before the end: what was asked of the endpoint is ours."""
    if has_answered(run.trace):
        return _budget_below_prompt(run)
    last = run.calls[-1].error if run.calls else None
    refused = run.trace.info.get(GATEWAY_RECORD, {}).get(LAST_REFUSED)
    stop = run.trace.stop_condition
    if last is not None and is_refusal(last):
        return ProviderError(f"{NO_ANSWER}: {last.message}\n{_advice(last)}", status_code=last.status_code or 400)
    if refused:
        return HarnessError(f"{NO_ANSWER} its request was refused by a bound of --env.gateway: {refused}")
    if stop is not None and stop != Outcome.AGENT_TIMEOUT.row.stop:
        option = f" (--env.agent.{stop.replace('_', '-')})" if stop.startswith("max_") else ""
        return HarnessError(f"{NO_ANSWER} the run was stopped by {stop}{option}")
    return None


def _advice(error: Error) -> str:
    if is_context_overflow(error):
        return (
            "the prompt and the longest answer that is asked for do not fit into the model's window: ask for less with "
            "--sampling.max-tokens N, have what fits chosen for each call (--env.agent.harness.context-window N, or "
            "auto where the endpoint's list of models names the window), or give the model a larger window"
        )
    return (
        "the endpoint refuses this request, and will again: try the same URL and model by hand; where it is the length "
        "of the answer, --sampling.max-tokens N asks for less"
    )


def _budget_below_prompt(run: EndedRun) -> RolloutError | None:
    """A budget that the first prompt alone uses up, whatever the policy answers to it."""
    if run.rollout.gateway is None or run.rollout.continued is not None:
        return None
    counted = [call for call in run.calls if call.usage is not None]
    prompt = min(counted, key=lambda call: call.time.start).usage if counted else None
    if prompt is None or run.calls[0].usage is not prompt:
        return None
    for name in ("max_input_tokens", "max_total_tokens"):
        budget = getattr(run.rollout.gateway.main.limits, name)
        if budget is not None and prompt.input_tokens >= budget:
            option = f"--env.agent.{name.replace('_', '-')} {budget}"
            return HarnessError(f"{NO_ANSWER} {option} is used up: the prompt has {prompt.input_tokens} tokens")
    return None


def _silent(run: EndedRun) -> RolloutError | None:
    """The time was over while a first answer was to be streamed, and nothing of it came."""
    program = run.rollout.program
    if has_answered(run.trace) or run.calls or not program.is_waiting or program.is_answered:
        return None
    silence = f"the endpoint sent nothing of its first answer in {program.longest_under_way:.0f} s, until the agent's"
    return ProviderError(f"{silence} time was over (--env.agent.timeout.rollout)", status_code=504)


def _request_refused(run: EndedRun) -> bool:
    refused = LAST_REFUSED in run.trace.info.get(GATEWAY_RECORD, {})
    return run.problem is not None and refused and bool(run.trace.calls[run.first_call :])


async def _raised(check: Awaitable[None]) -> RolloutError | None:
    try:
        await check
    except RolloutError as error:
        return error
    return None


def _tunnel_lost(run: EndedRun) -> Awaitable[RolloutError | None]:
    return _raised(require_tunnel(run.rollout.tunnel, doubted=run.problem is not None))


def _sound(run: EndedRun) -> bool:
    in_time = run.time_over is None
    if run.problem is None and (run.calls or in_time):
        ended = f"(exit {agent_record(run.trace).get('exit_code')})" if in_time else "when its time was over"
        try:
            require_model_calls(run.calls, ended)
        except RolloutError as error:
            run.problem = error
    if not in_time and run.rollout.program.is_answered and not has_answered(run.trace):
        run.problem = None  # what failed before was sent again
    # The endpoint may be silent on a call that is in no trace yet.
    silence = not in_time and bool(run.calls) and has_called_tool(run.trace)
    return run.problem is None and not silence


def _failed_before_tools(run: EndedRun) -> RolloutError | None:
    return None if has_called_tool(run.trace) else run.problem


def _hook_failed(run: EndedRun) -> RolloutError | None:
    left = run.rollout.take_failure()
    return left if isinstance(left, TaskError) else None


def _endpoint_failed(run: EndedRun) -> RolloutError | None:
    return endpoint_failure(Evidence.of(run.trace, run.first_call, run.harness, run.time_over))


async def _killed_for_memory(run: EndedRun) -> RolloutError | None:
    """The agent's program was killed while this machine's kernel ended processes of its sandbox for want of memory, and
    the agent had not reached a limit of its own, at which it can aim."""
    if agent_record(run.trace).get("exit_code") not in _KILLED or run.runtime is None:
        return None
    sandbox = abilities_of(run.runtime)
    try:
        if (await sandbox.limit_kills()).get("memory") or not sandbox.kills_below_limits():
            return None
    except SandboxError:
        return None
    return HarnessError(f"{run.problem}\nprocesses were killed for want of memory meanwhile")


def _sandbox_gone(run: EndedRun) -> Awaitable[RolloutError | None]:
    assert run.runtime is not None
    return _raised(require_alive(run.runtime, "the agent ran"))


def _unscored_break(run: EndedRun) -> RolloutError | None:
    if run.agent_errors != "error":
        return None
    return AgentError(f"{run.problem}\nthe agent's own programs could have done that")


def _broke(run: EndedRun) -> bool:
    agent_record(run.trace)["own_error"] = f"{type(run.problem).__name__}: {run.problem}"[:4000]
    return True


AFTER_A_RUN: Sequence[Condition] = (
    Condition(Outcome.NOT_STARTED, _not_started, time_over=True),
    Condition(Outcome.NO_ANSWER, _no_answer, time_over=True),
    Condition(Outcome.REQUEST_REFUSED, _request_refused),
    Condition(Outcome.CONTEXT_FULL, lambda run: run.trace.stop_condition is None and overflowed(run.calls)),
    Condition(Outcome.LIMIT, lambda run: run.trace.stop_condition is not None),
    Condition(Outcome.TUNNEL_LOST, _tunnel_lost),
    Condition(Outcome.ENDPOINT_FAILED, _silent, time_over=True),
    Condition(Outcome.COMPLETED, _sound, time_over=True),
    Condition(Outcome.AGENT_FAILED, _failed_before_tools, time_over=True),
    Condition(Outcome.STAGE_TIMEOUT, _hook_failed),
    Condition(Outcome.ENDPOINT_FAILED, _endpoint_failed, time_over=True),
    Condition(Outcome.AGENT_FAILED, _killed_for_memory),
    Condition(Outcome.SANDBOX_GONE, _sandbox_gone),
    Condition(Outcome.AGENT_ERROR, _unscored_break),
    Condition(Outcome.AGENT_BROKE, _broke),
)
"""The conditions of a run's outcome; the first that holds is it. Up to `_failed_before_tools` no program of the agent's
need have run; what stands behind it asks for evidence that nothing in the sandbox can make."""


def outcomes_at_the_end(trace: AnyTrace) -> set[Outcome]:
    """Those that no run of the agent ends with, or that a run can have beside its own."""
    record = agent_record(trace)
    holds = {
        Outcome.AGENT_TIMEOUT: trace.stop_condition == Outcome.AGENT_TIMEOUT.row.stop,
        Outcome.OUTLIVED: record.get("survivors") or record.get("outlived"),
        Outcome.CONTEXT_FULL: has_answered(trace) and overflowed(own_calls(trace)),
    }
    return {outcome for outcome, met in holds.items() if met}


def require_scorable(trace: AnyTrace) -> None:
    """Refuse a score that the agent could still be changing, or whose agent ran out of time for want of a model.

    Raises:
        SandboxError: processes of the agent are left in the sandbox; a `SandboxEndedError` where its own programs can
            have kept them from being ended, which is not tried again.
        HarnessError: the time was over before the agent's first model call.
        ProviderError: the time was over while the endpoint failed the agent's calls.
        InterceptionError: the same, while they failed on the path to the endpoint.
    """
    record = agent_record(trace)
    if survivors := record.get("survivors"):
        kind = SandboxEndedError if record.get("survivors_own") else SandboxError
        raise kind(f"not scored, the agent's processes could not be ended: {survivors}")
    if trace.stop_condition != Outcome.AGENT_TIMEOUT.row.stop:
        return
    harness = trace.agent.config.harness if trace.agent is not None else None
    rollout = rollout_of(trace)
    run = EndedRun(rollout, trace, harness, rollout.first_call, time_over=trace.timing.agent.end)
    for condition in AFTER_A_RUN:
        if condition.time_over and (found := condition.holds(run)):
            if metric := condition.outcome.row.metric:  # the session has put its own there before
                trace.record_metric(metric, 1.0)
            _ended(run, condition.outcome, found)
            return


def fail_stage_timeout(trace: AnyTrace) -> None:
    """Turn an expired setup, finalize or scoring deadline, which verifiers records as a clean stop, into an error. Only
    the agent's own time limit is the policy's doing."""
    stage = (trace.stop_condition or "").removesuffix("_timeout")
    if not trace.ok or stage not in _STAGES or not trace.is_timeout:
        return
    late = f"{stage} did not finish within its deadline (--env.agent.timeout.{stage}); nothing was scored"
    trace.record_error(TaskError(late))


def blame_own_programs(episode: Episode[Any, Any, Any]) -> None:
    """Have the failure of a sandbox count as one that the agent can have chosen, wherever it was noticed, once the
    model has called a tool there."""
    blamed = [trace for trace in episode.traces if has_called_tool(trace)]
    errors = [error for trace in blamed for error in trace.errors]
    for error in [*errors, *(episode.errors if blamed else ())]:
        if error.type == SandboxError.__name__:
            error.type = SandboxEndedError.__name__
    for trace in blamed:
        if trace.stop_condition == stop_condition(SandboxError()):
            trace.stop_condition = stop_condition(SandboxEndedError())


def unscore_failed(trace: AnyTrace) -> None:
    """Take the rewards off a trace that holds an error, those too that were given before it happened."""
    if not trace.ok:
        trace.rewards = dict.fromkeys(trace.rewards)


async def limits_met(runtime: Runtime) -> dict[str, Any]:
    """Return the agent's record of it: whether it `outlived` its end, and its `limit_kills`, where that is known."""
    sandbox = abilities_of(runtime)
    if sandbox.agent_survived is None:
        return {}
    found: dict[str, Any] = {"outlived": sandbox.agent_survived}
    with contextlib.suppress(SandboxError):  # the sandbox is gone, which is said elsewhere
        found["limit_kills"] = await sandbox.limit_kills()
    return found


def outlived_its_end(trace: AnyTrace) -> bool:
    """Whether the agent's processes outran their end, so that everything in the sandbox was ended with them."""
    return bool(agent_record(trace).get("outlived"))


def zero_spoilt(trace: AnyTrace) -> None:
    """Reward nothing where the agent's processes outran their end, or the time of scoring, or any scorer could not read
    what the agent made, whatever others have found."""
    if trace.metrics.get(UNREADABLE):
        pay_nothing(trace)
    if outlived_its_end(trace) or "scoring_overrun" in agent_record(trace):
        for name, reward in trace.rewards.items():
            trace.record_reward(name, 0.0, 1.0 if reward is None else reward.weight)
