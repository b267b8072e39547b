"""What `CliAgentEnv` promises of any agent's run, laid around the agent's own harness.

Invariant: when a guarded session was closed, either no process of the agent is left in the sandbox, or the record names
the `survivors` and the trace is not scored; and a run that the machinery failed has raised.
"""

import asyncio
import copy
import time
from functools import cache
from typing import Any, Generic
from weakref import WeakValueDictionary

from opencode_rubrics.scoring_clock import ScoringTimeout, scoring_time
from typing_extensions import TypeVar
from verifiers.v1.clients import ModelContext
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.errors import HarnessError, ProviderError, RolloutError, SandboxError, boundary
from verifiers.v1.harness import Harness, HarnessSession
from verifiers.v1.runtimes import ProgramResult, Runtime
from verifiers.v1.task import Task, TaskData
from verifiers.v1.types import Messages
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.agent_error import blamed, has_hands, memory_kills
from opencode_env.cli_agent.interception.gateway import refused_last
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.interception.sub_rollout import sub_rollout_of
from opencode_env.cli_agent.interception.way import require_way, until_lost
from opencode_env.cli_agent.limits_met import limits_met, outlived_its_end
from opencode_env.cli_agent.metrics import agent_metrics
from opencode_env.cli_agent.model_failure import overflowed, require_model_calls
from opencode_env.cli_agent.prime.errors import SandboxEndedError
from opencode_env.cli_agent.process_fence import ProcessFence, TellsAgent
from opencode_env.cli_agent.runaway import until_runaway
from opencode_env.cli_agent.traces import AnyTrace, agent_record

ConfigT = TypeVar("ConfigT", bound=HarnessConfig)


class GuardedHarness(Harness[ConfigT], Generic[ConfigT]):
    """A mixin before a harness class: its sessions are guarded, and a trace whose agent survived gets no score."""

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
        session = GuardedSession(inner, fence)
        _SESSIONS[trace.id] = session
        return session

    async def fenced_session(self, fence: ProcessFence, *arguments: Any, **options: Any) -> HarnessSession:
        """Mark the processes that run now, then open the harness's own session; arguments as for `session`.

        A harness whose session runs a preparing command anyway overrides this, to print the mark with it.
        """
        await fence.mark()
        return await super().session(*arguments, **options)

    async def launch(
        self, ctx: ModelContext, trace: AnyTrace, runtime: Runtime, *arguments: Any, **options: Any
    ) -> ProgramResult:
        """Run the harness's program; arguments as verifiers names them."""
        seen = runtime.agents_view() if isinstance(runtime, TellsAgent) else runtime
        return await super().launch(ctx, trace, seen, *arguments, **options)  # type: ignore[safe-super]  # a mixin

    async def _check_result(self, trace: AnyTrace, runtime: Runtime, result: ProgramResult) -> None:
        agent_record(trace)["exit_code"] = result.exit_code
        await super()._check_result(trace, runtime, result)

    async def score(self, trace: AnyTrace, runtime: Runtime) -> None:
        """Score a rollout that may be scored (see `require_scorable`)."""
        require_scorable(trace)
        await super().score(trace, runtime)


def require_scorable(trace: AnyTrace) -> None:
    """Refuse a score that the agent could still be changing, or whose agent ran out of time for want of a model.

    Raises:
        SandboxError: processes of the agent are left in the sandbox; a `SandboxEndedError` where its own programs can
            have kept them from being ended, which is not tried again.
        ProviderError: the time was over while the endpoint failed the agent's calls.
        InterceptionError: the same, while they failed on the way to the endpoint.
    """
    record = agent_record(trace)
    if survivors := record.get("survivors"):
        kind = SandboxEndedError if record.get("survivors_own") else SandboxError
        raise kind(f"not scored, the agent's processes could not be ended: {survivors}")
    calls = own_calls(trace)
    if trace.stop_condition == "agent_timeout" and calls:
        require_model_calls(calls, "when its time was over")


def guarded_task(task: Task[Any, Any, Any], scoring_seconds: float | None = None) -> Task[Any, Any, Any]:
    """The same task, which sees the sandbox only without the agent, and is scored only as `require_scorable` allows.

    Scoring has so many seconds, without what it waits for a place among others.

    verifiers 0.4.1 (dev26) closes the session of an agent that ended well after the scoring; here it is closed before
    `finalize`, as in 0.4.0. The harness's own refusal of a score is not enough: what a task has started would go on.
    """
    copied = copy.copy(task)

    # By name: the deployment came with verifiers 0.4.1 (dev18), and tasks written before do not take it.

    async def finalize(trace: AnyTrace, runtime: Runtime, deployment: Any = None) -> None:
        if (session := _SESSIONS.get(trace.id)) is not None:
            await session.close()
        await invoke(task.finalize, {"trace": trace, "runtime": runtime, "deployment": deployment})

    async def score(trace: AnyTrace, runtime: Runtime | None = None, deployment: Any = None) -> None:
        require_scorable(trace)
        # By name: the deployment came with verifiers 0.4.1 (dev18), and tasks written before do not take it.
        try:
            async with scoring_time(scoring_seconds):
                await invoke(task.score, {"trace": trace, "runtime": runtime, "deployment": deployment})
        except ScoringTimeout:
            trace.record_timeout("scoring")
        except RolloutError as error:
            # The services that scoring wanted have ended with the agent that would not: its doing, and its 0.
            if not outlived_its_end(trace):
                raise
            agent_record(trace)["scoring_error"] = str(error)

    for method in (finalize, score):
        setattr(copied, method.__name__, method)
    return copied


def guarded(harness: Harness[Any], *, contained: bool) -> Harness[Any]:
    """The same harness, guarded; with `contained`, also where it asks for a container: its sandbox is one."""
    copied = copy.copy(harness)  # not made anew: a constructor may want more than the configuration
    copied.__class__ = _guarded_class(type(harness), contained)
    return copied


@cache
def _guarded_class(harness: type[Harness[Any]], contained: bool) -> type[Harness[Any]]:
    bases = (harness,) if issubclass(harness, GuardedHarness) else (GuardedHarness, harness)
    members = {"NEEDS_CONTAINER": harness.NEEDS_CONTAINER and not contained, "__module__": harness.__module__}
    return type(harness.__name__, bases, members)


class GuardedSession(HarnessSession):
    """Drives another session, and ends the agent when it runs away, at its close, and whatever it left running."""

    def __init__(self, inner: HarnessSession, fence: ProcessFence) -> None:
        super().__init__(
            inner.harness,
            inner.ctx,
            inner.trace,
            inner.runtime,
            inner.endpoint,
            inner.secret,
            inner.mcp_urls,
            inner.data,
            inner.tool_interception_url,
        )
        self._inner = inner
        self._fence = fence
        self._error: RolloutError | None = None
        self._segments = 0
        self._duration = 0.0

    async def steer(self, message: str, *, message_id: str | None = None) -> dict[str, Any]:
        """Deliver a user message during a running turn, if the agent can take one."""
        receipt: dict[str, Any] = await self._inner.steer(message, message_id=message_id)
        return receipt

    async def turn(self, messages: Messages | None = None) -> None:
        """Run one segment to its end.

        Raises:
            RolloutError: the type of the boundary that broke; the policy's own doing raises nothing.
        """
        first_call, started, kills = len(self.trace.calls), time.monotonic(), memory_kills()
        self._segments += 1
        try:
            try:
                await self._run_segment(messages, first_call)
            except HarnessError as error:
                await require_way(self.trace, doubted=True)
                raise await blamed(error, self.trace, self.runtime, kills) from error
        except RolloutError as error:
            # An agent that dies of a refused turn was stopped, it did not fail.
            self._error = error if self.trace.stop_condition is None else None
            raise
        finally:
            self._duration += time.monotonic() - started

    async def _run_segment(self, messages: Messages | None, first_call: int) -> None:
        """Run the segment; a conversation that outgrew the model's window, or the bounds of a request, is a stop,
        however the agent took it."""
        try:
            await self._watched(messages, first_call)
        except HarnessError:
            if refused_last(self.trace) and self.trace.calls[first_call:]:
                self.trace.stop("request_refused")
            elif not overflowed(own_calls(self.trace, first_call)):
                raise
        if self.trace.stop_condition is not None:
            return
        await require_way(self.trace, doubted=False)
        calls = own_calls(self.trace, first_call)
        require_model_calls(calls, f"(exit {agent_record(self.trace).get('exit_code')})")
        if overflowed(calls):
            self.trace.stop("max_total_tokens")

    async def _watched(self, messages: Messages | None, first_call: int) -> None:
        """Run the segment, and end the agent when it has stopped making progress for good, or cannot."""
        run = asyncio.ensure_future(self._inner_turn(messages))
        watch = asyncio.ensure_future(until_runaway(self.trace, first_call))
        cut_off = asyncio.ensure_future(until_lost(self.trace))
        try:
            await asyncio.wait({run, watch, cut_off}, return_when=asyncio.FIRST_COMPLETED)
            if run.cancelled():
                raise HarnessError(f"harness {self.harness.config.id!r} cancelled its own run")
            if run.done():
                run.result()
                return
        finally:
            for task in (run, watch, cut_off):
                task.cancel()
            await asyncio.gather(run, watch, cut_off, return_exceptions=True)
        await self._fence.end()
        await require_way(self.trace, doubted=False)
        if overflowed(own_calls(self.trace, first_call)):
            return
        raise ProviderError(
            "the agent keeps calling the model without end: its streams name no finish reason, or every call fails "
            f"({len(self.trace.calls) - first_call} calls in this run); the model endpoint is broken"
        )

    async def _inner_turn(self, messages: Messages | None) -> None:
        async with boundary(HarnessError, f"harness {self.harness.config.id!r}"):
            await self._inner.turn(messages)

    async def close(self) -> None:
        """End the agent's processes and its sub calls, and put its record and metrics on the trace. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            await self._inner.close()
        finally:
            record = agent_record(self.trace)
            record |= {"segments": self._segments, "duration": round(self._duration, 3)}
            try:
                await self._fence.end()
            except SandboxError as error:
                record |= {"survivors": str(error), "survivors_own": self._fence.spoilt and has_hands(self.trace)}
            record |= await limits_met(self.runtime)
            if (side := sub_rollout_of(self.trace)) is not None:
                await side.end()
            overflow = overflowed(own_calls(self.trace))
            metrics = agent_metrics(self.trace, self._error, context_overflow=overflow)
            self.trace.record_metrics(metrics)


_SESSIONS: WeakValueDictionary[str, GuardedSession] = WeakValueDictionary()
"""By trace id: verifiers shows a task the trace, and neither the session nor the harness."""
