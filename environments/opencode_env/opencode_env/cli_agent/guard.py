"""What `CliAgentEnv` promises of any agent's run, laid around the agent's own harness.

When a guarded session was closed, either no process of the agent is left in the sandbox, or the record names
the `survivors` and the trace is not scored; and a run that the infrastructure failed, by `classification`, has raised.

Metrics are counted from what the model really sampled: retried and failed calls are not turns. Sub-agents that share
the main agent's trace are counted with it.
"""

import asyncio
import copy
import logging
import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import replace
from typing import Any, Generic

from opencode_rubrics import Rubric, require_alive
from opencode_rubrics.rubric import NeutralAnswer, read_as_data
from rollout_sandbox.errors import ScoringTimeout
from rollout_sandbox.outcomes import Outcome
from typing_extensions import TypeVar
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.errors import (
    HarnessError,
    InterceptionError,
    ProviderError,
    RolloutError,
    SandboxError,
    TaskError,
    boundary,
)
from verifiers.v1.harness import Harness, HarnessSession
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import Task, TaskData
from verifiers.v1.types import Messages
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.classification import (
    EndedRun,
    classify,
    has_called_tool,
    limits_met,
    outcomes_at_the_end,
    outlived_its_end,
    overflowed,
    recovered,
    require_scorable,
)
from opencode_env.cli_agent.interception.callers import own_calls
from opencode_env.cli_agent.interception.conversations import HISTORY_RECORD
from opencode_env.cli_agent.interception.gateway import GATEWAY_RECORD, PARTIAL, REPEATED
from opencode_env.cli_agent.interception.training_client import spelled_calls
from opencode_env.cli_agent.interception.tunnel import require_tunnel, until_lost
from opencode_env.cli_agent.outcomes import AgentErrors, RunOutcome, flags_of_outcomes
from opencode_env.cli_agent.process_fence import ProcessFence, agents_view
from opencode_env.cli_agent.rollout import Patience, rollout_of
from opencode_env.cli_agent.runaway import until_runaway
from opencode_env.cli_agent.traces import (
    AnyTrace,
    agent_record,
    last_answer,
    mask_untrained,
    name_reply,
    tool_counts,
)
from opencode_env.compat import with_methods, with_mixin
from opencode_env.errors import ConfigurationError

logger = logging.getLogger("verifiers.v1.opencode_env.cli_agent")

ConfigT = TypeVar("ConfigT", bound=HarnessConfig)


class GuardedHarness(Harness[ConfigT], Generic[ConfigT]):
    """A mixin before a harness class: its sessions are guarded, and a trace whose agent survived gets no score."""

    agent_errors: AgentErrors = "score"
    """What becomes of a run that the agent itself has broken."""

    async def session(
        self,
        ctx: ModelContext,
        trace: AnyTrace,
        runtime: Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: TaskData,
        tool_interception_url: str | None = None,
    ) -> HarnessSession:
        """Draw the line before the agent, and prepare the harness's own session behind it."""
        fence = ProcessFence(runtime)
        options = {} if tool_interception_url is None else {"tool_interception_url": tool_interception_url}
        inner = await self.fenced_session(fence, ctx, trace, runtime, endpoint, secret, mcp_urls, data, **options)
        rollout = rollout_of(trace)
        rollout.session = session = GuardedSession(inner, fence, self.agent_errors)
        rollout.patience = getattr(self, "patience", Patience)()
        return session

    async def fenced_session(self, fence: ProcessFence, *arguments: Any, **options: Any) -> HarnessSession:
        """Mark the processes that run now, then open the harness's own session; arguments as for `session`. A harness
        whose session runs a preparing command anyway overrides this, to print the mark with it."""
        await fence.mark()
        return await super().session(*arguments, **options)

    async def launch(
        self, ctx: ModelContext, trace: AnyTrace, runtime: Runtime, *arguments: Any, **options: Any
    ) -> ProgramResult:
        """Run the harness's program; arguments as verifiers names them."""
        return await super().launch(ctx, trace, agents_view(runtime), *arguments, **options)  # type: ignore[safe-super]  # a mixin

    async def _check_result(self, trace: AnyTrace, runtime: Runtime, result: ProgramResult) -> None:
        agent_record(trace)["exit_code"] = result.exit_code
        await super()._check_result(trace, runtime, result)

    async def score(self, trace: AnyTrace, runtime: Runtime) -> None:
        """Score a rollout that may be scored (see `require_scorable`); what raises over what the agent made costs the
        reward, which the task's scoring gives beside it."""
        require_scorable(trace)
        await read_as_data(super().score, trace, runtime, NeutralAnswer(), type(self))


def guarded_task(
    task: Task[Any, Any, Any], scoring_seconds: float | None = None, *, continued: bool = False
) -> Task[Any, Any, Any]:
    """The same task, which sees the sandbox only without the agent, and is scored only as `require_scorable` allows.
    What its scoring, or finalizing, raises over what the agent made is a reward of 0 (`read_as_data`), whoever has
    written it.

    Scoring has so many seconds, without what it waits for a place among others. The sandbox of a rollout that is
    `continued` is not set up again; a task brings back what it holds elsewhere in a method `setup_continued`. One whose
    attribute `continues` says that its rollouts go on in the middle of one is played in no other way.

    verifiers after 0.4.0 closes the session of an agent that ended well after the scoring; here it is closed before
    `finalize`. The harness's own refusal of a score is not enough: what a task has started would go on.

    Raises:
        TaskError: a task that `continues` is not `continued`.
    """
    if not continued and getattr(task, "continues", False):
        raise TaskError(f"task {task.data.idx} goes on in the middle of a rollout, and this environment cannot")
    # By name below: verifiers 0.4.0 has no deployment, and tasks written for it do not take one.

    async def finalize(trace: AnyTrace, runtime: Runtime, deployment: Any = None) -> None:
        if (session := rollout_of(trace).session) is not None:
            await session.close()

        async def read(trace: AnyTrace, runtime: Runtime | None) -> None:
            await invoke(task.finalize, {"trace": trace, "runtime": runtime, "deployment": deployment})

        await read_as_data(read, trace, runtime, _neutral(task), type(task))

    async def score(trace: AnyTrace, runtime: Runtime | None = None, deployment: Any = None) -> None:
        require_scorable(trace)

        async def read(trace: AnyTrace, runtime: Runtime | None) -> None:
            await invoke(task.score, {"trace": trace, "runtime": runtime, "deployment": deployment})

        try:
            async with rollout_of(trace).time(scoring_seconds):
                await read_as_data(read, trace, runtime, _neutral(task), type(task))
        except ScoringTimeout as error:
            if not error.agents:
                trace.record_timeout("scoring")
                return
            if runtime is not None:
                await require_alive(runtime, "scoring")
            agent_record(trace)["scoring_overrun"] = f"{error}, which programs of the agent's had"
        except RolloutError as error:
            # The services that scoring wanted have ended with the agent that would not: its doing, and its 0.
            if not outlived_its_end(trace):
                raise
            agent_record(trace)["scoring_error"] = str(error)

    async def no_setup(trace: AnyTrace, runtime: Runtime, deployment: Any = None) -> None:
        """Its effects are among the files that were put there."""

    setup = {"setup": getattr(task, "setup_continued", no_setup)} if continued else {}
    return with_methods(copy.copy(task), finalize=finalize, score=score, **setup)


def _neutral(task: Task[Any, Any, Any]) -> NeutralAnswer:
    """Return the neutral answer of the task's rubric, if it has one of ours."""
    with suppress(Exception):  # said by the scoring itself
        rubric = getattr(task, "rubric", None)
        if isinstance(rubric, Rubric):
            return replace(rubric.neutral(task.data), sandbox=True)
    return NeutralAnswer()


def guarded(harness: Harness[Any], *, contained: bool, agent_errors: AgentErrors = "score") -> Harness[Any]:
    """The same harness, guarded; with `contained`, also where it asks for a container: its sandbox is one."""
    copied = copy.copy(harness)  # not made anew: a constructor may want more than the configuration
    needs = harness.NEEDS_CONTAINER and not contained
    return with_mixin(copied, GuardedHarness, NEEDS_CONTAINER=needs, agent_errors=agent_errors)


class GuardedSession(HarnessSession):
    """Drives another session, and ends the agent when it runs away, at its close, and whatever it left running."""

    def __init__(self, inner: HarnessSession, fence: ProcessFence, agent_errors: AgentErrors = "score") -> None:
        connection = (inner.endpoint, inner.secret, inner.mcp_urls, inner.data, inner.tool_interception_url)
        super().__init__(inner.harness, inner.ctx, inner.trace, inner.runtime, *connection)
        self._inner = inner
        self._fence = fence
        self._rollout = rollout_of(inner.trace)
        self._agent_errors = agent_errors
        self._error: RolloutError | None = None
        self._outcomes: set[Outcome] = set()
        self._segments = 0
        self._duration = 0.0

    async def steer(self, message: str, *, message_id: str | None = None) -> dict[str, Any]:
        return await self._inner.steer(message, message_id=message_id)

    async def turn(self, messages: Messages | None = None) -> None:
        """Run one segment to its end.

        Raises:
            RolloutError: the type of the boundary that broke; the policy's own doing raises nothing.
        """
        first_call, started = len(self.trace.calls), time.monotonic()
        self._segments += 1
        try:
            await self._run_segment(messages, first_call)
        except RolloutError as error:
            if has_called_tool(self.trace):
                self._rollout.take_failure()  # which verifiers would prefer
            # An agent that dies of a refused turn was stopped, it did not fail.
            self._error = error if self.trace.stop_condition is None else None
            raise
        finally:
            name_reply(self.trace)
            self._duration += time.monotonic() - started

    async def _run_segment(self, messages: Messages | None, first_call: int) -> None:
        problem: RolloutError | None = None
        try:
            await self._watched(messages, first_call)
        except ConfigurationError as error:
            raise HarnessError(str(error)) from error
        except (HarnessError, ProviderError, InterceptionError) as error:
            problem = error
        run = EndedRun(self._rollout, self.trace, first_call, problem, self.runtime, self._agent_errors)
        try:
            await classify(run)
        finally:
            if run.outcome is not None:
                self._outcomes.add(run.outcome)
        if run.outcome is RunOutcome.AGENT_BROKE:
            self._error = run.problem

    async def _watched(self, messages: Messages | None, first_call: int) -> None:
        """Run the segment, and end the agent when it has stopped making progress for good, or cannot."""
        run = asyncio.ensure_future(self._inner.turn(messages))
        watch = asyncio.ensure_future(until_runaway(self.trace, first_call))
        cut_off = asyncio.ensure_future(until_lost(self._rollout.tunnel))
        try:
            await asyncio.wait({run, watch, cut_off}, return_when=asyncio.FIRST_COMPLETED)
            if run.cancelled():
                raise HarnessError(f"harness {self.harness.config.id!r} cancelled its own run")
            if run.done():
                async with boundary(HarnessError, f"harness {self.harness.config.id!r}"):
                    run.result()
                return
        finally:
            for task in (run, watch, cut_off):
                task.cancel()
            await asyncio.gather(run, watch, cut_off, return_exceptions=True)
        await self._fence.end()
        await require_tunnel(self._rollout.tunnel, doubted=False)
        if overflowed(own_calls(self.trace, first_call)):
            return
        made = len(self.trace.calls) - first_call
        endless = f"the agent keeps calling the model without end ({made} calls in this run)"
        if has_called_tool(self.trace):
            raise HarnessError(endless)
        why = "its streams name no finish reason, or every call fails; the endpoint is broken"
        raise ProviderError(f"{endless}: {why}")

    async def close(self) -> None:
        """End the agent's processes and its sub calls, and put its record and metrics on the trace. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            try:
                await self._rollout.agent_ended()
            finally:
                await self._inner.close()
        finally:
            record = agent_record(self.trace)
            record |= {"segments": self._segments, "duration": round(self._duration, 3)}
            try:
                await self._fence.end()
            except SandboxError as error:
                record |= {"survivors": str(error), "survivors_own": self._fence.spoilt and has_called_tool(self.trace)}
            record |= await limits_met(self.runtime)
            if (side := self._rollout.live_sub) is not None:
                await side.end()
            self.trace.record_metrics(agent_metrics(self.trace, self._error, self._outcomes))
            try:
                self.trace.record_metrics(await self._spelled_calls())
            except Exception:  # what the policy wrote is never an error
                logger.warning("calls that were spelled in ordinary tokens could not be counted", exc_info=True)
            await self._mask_untrained()

    async def _mask_untrained(self) -> None:
        """Say on both sides' traces what of their sections and summaries is to train, and mask the rest."""
        side, gateway = self._rollout.sub, self._rollout.gateway
        for trace in (self.trace, *(() if side is None else (side.trace,))):
            if gateway is not None and "sections" in (history := trace.info.get(HISTORY_RECORD, {})):
                history["trains"] = gateway.summaries.trains
            await mask_untrained(trace)

    async def _spelled_calls(self) -> dict[str, float]:
        """The metrics of both sides' calls that text and tokens read differently, as far as that can be told."""
        told = {"spelled_calls": await spelled_calls(self.ctx, self.trace, self._rollout.first_node)}
        if (side := self._rollout.sub) is not None:
            told["sub_llm_spelled_calls"] = await spelled_calls(side.session.ctx, side.trace)
        return {name: count for name, count in told.items() if count is not None}


def agent_metrics(trace: AnyTrace, error: RolloutError | None, ended: Collection[Outcome] = ()) -> dict[str, float]:
    """The metrics of every agent, all present in every rollout: counts, and flags as 0 or 1. `error` is what broke the
    agent's run, `ended` are the outcomes of its runs."""
    counts, record, gateway = tool_counts(trace), agent_record(trace), trace.info.get(GATEWAY_RECORD, {})
    last = last_answer(trace)
    failed = sum(call.error is not None for call in trace.calls)
    empty = last is not None and not (last.content or "").strip() and not last.tool_calls
    return {
        "num_turns": float(trace.num_turns),
        "agent_error": float(error is not None),
        **flags_of_outcomes({*ended, *outcomes_at_the_end(trace)}, rollout_of(trace).outcomes),
        "limit_kills": float(sum(record.get("limit_kills", {}).values())),
        "empty_answer": float(empty),
        "program_calls": float(len(trace.calls) - len(own_calls(trace))),
        "repeated_calls": float(gateway.get(REPEATED, 0)),
        "ghost_answers": float(gateway.get(PARTIAL, 0)),
        "model_call_errors": float(failed - sum(recovered(own_calls(trace)))),
        "total_tool_calls": float(counts.total()),
        "unique_tools_used": float(len(counts)),
        "has_tool_calls": float(bool(counts)),
    }
