"""How did a rollout end? The conditions of its outcome in the order in which they are asked, and whose doing it was.

What the policy did (any answer, however bad; giving up; a full context window) is data. Nobody outside the sandbox can
watch what ends a program inside, so the line is drawn by who could have done it. Before the model has called a tool no
program of the agent's exists, and a failure is the infrastructure's: a model call that failed and that the agent did
not recover from is raised as the error of the boundary that broke. The agent's exit code tells nothing: many exit 0
after either.

A policy that could make a bad rollout an error would be sampled anew for free. So once a program of the agent's
can have run, a failure is the infrastructure's only on evidence that nothing in the sandbox can make: what our server
saw the endpoint do to calls of the agent's own program, which that program has sent again as often as it does by
itself; what a runtime's own API says of a lost sandbox; what the probe of a tunnel says. Whatever else ends a run then
(a log, an exit code, a killed process, an endless loop, a request that the endpoint refuses for what is in it) is the
policy's doing and is scored.

A new outcome is a row and a condition here (see `outcomes`). What raises is never scored; what returns is. An agent
whose processes outran their end, or whose programs used the time of scoring, is rewarded nothing and is not an error.
"""

import contextlib
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from inspect import isawaitable
from itertools import chain, repeat, takewhile
from typing import Any

from opencode_rubrics.rubric import UNREADABLE_METRIC, pay_nothing
from rollout_sandbox.compat import abilities_of
from rollout_sandbox.errors import SandboxEndedError
from rollout_sandbox.outcomes import Outcome
from rollout_sandbox.toolbox.checked_run import require_alive
from rollout_sandbox.toolbox.scoring import attached
from verifiers.v1.episode import Episode
from verifiers.v1.errors import (
    HarnessError,
    InterceptionError,
    ProviderError,
    RolloutError,
    SandboxError,
    TaskError,
    stop_condition,
)
from verifiers.v1.runtimes import Runtime
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.types import Message

from opencode_env.cli_agent.interception.callers import RECORDED_PROGRAM_CALLS, own_calls, program_calls
from opencode_env.cli_agent.interception.gateway import GATEWAY_RECORD, LAST_REFUSED
from opencode_env.cli_agent.interception.tunnel import require_tunnel
from opencode_env.cli_agent.interception.window import says_full
from opencode_env.cli_agent.outcomes import NO_ANSWER, AgentErrors, RunOutcome, endpoint_errors
from opencode_env.cli_agent.rollout import Patience, Rollout, rollout_of
from opencode_env.cli_agent.runaway import NOT_STARTED
from opencode_env.cli_agent.traces import AnyTrace, agent_record
from opencode_env.errors import AgentError

_KILLED = (-signal.SIGKILL, 128 + signal.SIGKILL)
_STAGES = ("setup", "finalize", "scoring")
_FINAL = frozenset({401, 402, 403})
"""Statuses of an account, at which no program tries again."""
_MAY_PASS = frozenset({408, 429})
"""Those of 4xx that do not depend on what was asked; it is 5xx and a broken answer besides."""
_OF_CONTENT = frozenset({400, 413, 422})
"""Those with which a seat that has one address, model and sampling, whatever it is sent, can refuse what that says."""
_LONGEST_REST_S = 60.0
"""Longer than any agent rests between two sends of a call."""
_FLOOD = 20
"""So many requests of the agent's programs shortly before a failure can have caused it."""
_CROWD = 5
"""So many of them at the endpoint beside one call can have made that fail."""


def require_model_calls(calls: Sequence[ModelCall], describe: str) -> None:
    """Refuse a run that never asked the model, or whose last call failed for another reason than a full window.

    The calls are in order of their end; `describe` says how the run ended, for the message.

    Raises:
        HarnessError: there is no call.
        ProviderError: the endpoint failed the last call.
        InterceptionError: the last call failed on the path to the endpoint.
    """
    if not calls:
        raise HarnessError(f"the agent ended without a single model call {describe}")
    error = calls[-1].error
    if error is not None and not is_context_overflow(error):
        raise as_exception(error)


def overflowed(calls: Sequence[ModelCall]) -> bool:
    """Whether the run ended because the conversation no longer fits the model's window."""
    return bool(calls) and calls[-1].error is not None and is_context_overflow(calls[-1].error)


def recovered(calls: Sequence[ModelCall]) -> list[bool]:
    """Whether each call was refused for a full window and the agent went on to another that was answered."""
    last = max((number for number, call in enumerate(calls) if call.node is not None), default=-1)
    refused = (call.error is not None and is_context_overflow(call.error) for call in calls)
    return [full and number < last for number, full in enumerate(refused)]


def is_context_overflow(error: Error) -> bool:
    """Whether a failed call says that the conversation outgrew the model's window: a 400, 413 or 422 that names it, or
    words with which an engine says nothing else, whatever the status."""
    return says_full(error.status_code, error.message)


def is_refusal(error: Error) -> bool:
    """Whether the endpoint refused a request for what is in it, and will refuse it again."""
    status = error.status_code or 0
    refused = error.type in endpoint_errors() and 400 <= status < 500 and status not in _FINAL | _MAY_PASS
    return refused or is_context_overflow(error)


def as_exception(error: Error) -> RolloutError:
    """The recorded failure of a model call as the exception of its boundary."""
    if error.type == "InterceptionError":
        return InterceptionError(error.message)
    return ProviderError(error.message, status_code=error.status_code or 502)


@dataclass(frozen=True)
class Evidence:
    """Holds what our server saw of one run of an agent."""

    own: Sequence[ModelCall]
    """Calls of the agent's own program, in order of their end."""
    programs: Sequence[ModelCall] = ()
    """Calls of the programs that the agent started."""
    patience: Patience = field(default_factory=Patience)
    under_way: float = 0.0
    """Seconds for which the endpoint has been silent on some call of its own."""
    time_over: float | None = None
    """When the run's time limit ended it, if that did."""
    keys: Sequence[str | None] = ()
    """For each of its own calls the key by which the sends of one call are known; empty or None: they are of one."""
    waits: Sequence[float] = ()
    """For each of its own calls the seconds after which the endpoint wanted it to come again; empty or 0: it named
    none."""
    elsewhere: Sequence[bool] = ()
    """For each of its own calls whether it is a summary that another seat's model failed to make; empty: none is."""
    load: Callable[[float, float], int] = lambda start, end: 0
    """How many requests of the programs were at the endpoint between two moments, answered or not."""

    @classmethod
    def of(cls, trace: AnyTrace, first_call: int, time_over: float | None = None) -> "Evidence":
        """Return what there is of the run whose first model call is number `first_call`."""
        own, rollout = own_calls(trace, first_call), rollout_of(trace)
        others, waits = program_calls(trace, rollout.first_call), rollout.program.longest_under_way
        gateway = rollout.gateway
        keys, named, elsewhere = (
            ((), (), ())
            if gateway is None
            else (gateway.step_keys(own), gateway.waits_of(own), gateway.are_elsewhere(own))
        )
        load = rollout.program_load
        return cls(own, others, rollout.patience, waits, time_over, keys, named, elsewhere, load)

    def rest(self, failed: int = 1) -> float:
        """The longest seconds that the program may have rested behind one of its last calls."""
        return max(_LONGEST_REST_S, *self.waits[-failed:], 0.0)

    def failed(self) -> list[ModelCall]:
        """Those of its own calls at the end of the run that failed in a way that tells of the endpoint, the last one
        first."""
        ends = zip(reversed(self.own), chain(reversed(self.elsewhere), repeat(False)), strict=False)
        return [call for call, _ in takewhile(lambda end: _is_the_endpoints(*end), ends)]


def endpoint_failure(evidence: Evidence) -> RolloutError | None:
    """Return what the endpoint did that ended the run; None when it did not."""
    patience = evidence.patience
    if evidence.under_way >= patience.seconds:
        return ProviderError(f"the endpoint has not answered a call for {patience.seconds:g} s", status_code=504)
    failed = evidence.failed()
    if not failed or _flooded(evidence, failed):
        return None
    # Failures of several calls at once, such as of sub-agents, are not sends of one.
    sends = max(Counter(evidence.keys[-len(failed) :]).values(), default=len(failed))
    last = failed[0]
    assert last.error is not None
    in_time = evidence.time_over is not None and evidence.time_over - last.time.end <= evidence.rest()
    elsewhere = bool(evidence.elsewhere) and evidence.elsewhere[-1]
    if _is_final(last.error.status_code, elsewhere) or sends >= patience.sends or in_time:
        return as_exception(last.error)
    return None


def _is_final(status: int | None, elsewhere: bool) -> bool:
    """Whether an endpoint has a status at which no program tries again, and which no request can bring about by what it
    says: at the agent's own endpoint, which has answered it, only those of an account."""
    refused = elsewhere and status is not None and status < 500 and status not in _OF_CONTENT | _MAY_PASS
    return refused or status in _FINAL


def _is_the_endpoints(call: ModelCall, elsewhere: bool) -> bool:
    """Whether a call failed in a way that tells of the endpoint, and not of what it was asked."""
    error = call.error
    if error is None or error.type not in endpoint_errors() or is_context_overflow(error):
        return False
    status = error.status_code
    return status is None or status >= 500 or status in _MAY_PASS or _is_final(status, elsewhere)


def _flooded(evidence: Evidence, failed: Sequence[ModelCall]) -> bool:
    """Whether the agent's programs asked so much that the endpoint may have failed the agent's own calls for that."""
    # What an endpoint limits for so long may have been asked for as long before.
    programs, since = evidence.programs, failed[-1].time.start - evidence.rest(len(failed))
    # Of failed ones the trace keeps the first only.
    if len(programs) >= RECORDED_PROGRAM_CALLS or sum(call.time.end >= since for call in programs) >= _FLOOD:
        return True
    beside = (evidence.load(call.time.start, call.time.end) for call in failed)
    return evidence.load(since, failed[0].time.end) >= _FLOOD or max(beside) >= _CROWD


@dataclass
class EndedRun:
    """One run of an agent that has ended: what is known of it, and what can be asked now."""

    rollout: Rollout
    trace: AnyTrace
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
    """Tells when a run has this outcome."""

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
    before = rollout_of(trace).before
    return bool(_sampled(trace)) or (before is not None and before.resumed)


def _sampled(trace: AnyTrace) -> list[Message]:
    """The answers of the agent's model in this sandbox."""
    return [node.message for node in trace.nodes[rollout_of(trace).first_node :] if node.sampled]


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
    """Return what follows from a condition that holds: an error is raised, a stop is put on the trace."""
    run.outcome = run.rollout.outcome = outcome
    if isinstance(found, RolloutError):
        if found is run.problem:
            raise found
        run.rollout.take_failure()  # which verifiers would prefer
        if run.time_over is None:  # else verifiers would take the error for what a stop does to an agent
            run.trace.stop_condition, run.trace.is_completed = None, False
        raise found from run.problem
    if outcome.stop:
        run.trace.stop(outcome.stop)


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
    if stop is not None and stop != RunOutcome.AGENT_TIMEOUT.stop:
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
    if run.rollout.gateway is None or run.rollout.before is not None:
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
    return endpoint_failure(Evidence.of(run.trace, run.first_call, run.time_over))


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
    Condition(RunOutcome.NOT_STARTED, _not_started, time_over=True),
    Condition(RunOutcome.NO_ANSWER, _no_answer, time_over=True),
    Condition(RunOutcome.REQUEST_REFUSED, _request_refused),
    Condition(RunOutcome.CONTEXT_FULL, lambda run: run.trace.stop_condition is None and overflowed(run.calls)),
    Condition(RunOutcome.LIMIT, lambda run: run.trace.stop_condition is not None),
    Condition(RunOutcome.TUNNEL_LOST, _tunnel_lost),
    Condition(RunOutcome.ENDPOINT_FAILED, _silent, time_over=True),
    Condition(RunOutcome.COMPLETED, _sound, time_over=True),
    Condition(RunOutcome.AGENT_FAILED, _failed_before_tools, time_over=True),
    Condition(RunOutcome.STAGE_TIMEOUT, _hook_failed),
    Condition(RunOutcome.ENDPOINT_FAILED, _endpoint_failed, time_over=True),
    Condition(RunOutcome.AGENT_FAILED, _killed_for_memory),
    Condition(RunOutcome.SANDBOX_GONE, _sandbox_gone),
    Condition(RunOutcome.AGENT_ERROR, _unscored_break),
    Condition(RunOutcome.AGENT_BROKE, _broke),
)
"""The conditions of a run's outcome; the first that holds is it. Up to `_failed_before_tools` no program of the agent's
need have run; what stands behind it asks for evidence that nothing in the sandbox can make."""


def outcomes_at_the_end(trace: AnyTrace) -> set[Outcome]:
    """Those that no run of the agent ends with, or that a run can have beside its own."""
    record = agent_record(trace)
    holds = {
        RunOutcome.AGENT_TIMEOUT: trace.stop_condition == RunOutcome.AGENT_TIMEOUT.stop,
        RunOutcome.OUTLIVED: record.get("survivors") or record.get("outlived"),
        RunOutcome.CONTEXT_FULL: has_answered(trace) and overflowed(own_calls(trace)),
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
    if trace.stop_condition != RunOutcome.AGENT_TIMEOUT.stop:
        return
    rollout = rollout_of(trace)
    run = EndedRun(rollout, trace, rollout.first_call, time_over=trace.timing.agent.end)
    for condition in AFTER_A_RUN:
        if condition.time_over and (found := condition.holds(run)):
            if metric := condition.outcome.metric:  # the session has put its own there before
                trace.record_metric(metric, 1.0)
            _ended(run, condition.outcome, found)
            return


def fail_stage_timeout(trace: AnyTrace) -> None:
    """Make an error of an expired setup, finalize or scoring deadline, which verifiers records as a clean stop. Only
    the agent's own time limit is the policy's doing."""
    stage = (trace.stop_condition or "").removesuffix("_timeout")
    if not trace.ok or stage not in _STAGES or not trace.is_timeout:
        return
    late = f"{stage} did not finish within its deadline (--env.agent.timeout.{stage}); nothing was scored"
    trace.record_error(TaskError(late))


OUTCOME = "outcome"
"""Key in `trace.info` of how a rollout ended, for readers without an environment: the `name` of a row, or the type of
an error that has none, and whether it is tried `again` where no rule of `--env.retries` says otherwise."""


def note_outcome(trace: AnyTrace) -> None:
    """Put on the trace of a rollout's agent how the rollout ended, once that can change no more."""
    rollout = attached(trace)
    if not isinstance(rollout, Rollout) or rollout.trace is not trace:
        return
    error, last = None if trace.ok else trace.last_error, rollout.outcome

    def fits(row: Outcome) -> bool:
        if error is not None:
            return error.type in row.errors and error.message.startswith(row.begins)
        met = trace.metrics.get(row.metric) if row.metric else row.stop and row.stop == trace.stop_condition
        return row.scored and bool(met)

    rows = [row for row in rollout.outcomes if fits(row)]
    if last is not None and (last in rows or (error is None and not rows and last.scored)):
        rows = [last]
    name = error.type if error is not None else RunOutcome.COMPLETED.name
    trace.info[OUTCOME] = {"name": rows[0].name if rows else name, "again": not rows or rows[0].again}


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
    if trace.metrics.get(UNREADABLE_METRIC):
        pay_nothing(trace)
    if outlived_its_end(trace) or "scoring_overrun" in agent_record(trace):
        for name, reward in trace.rewards.items():
            trace.record_reward(name, 0.0, 1.0 if reward is None else reward.weight)
