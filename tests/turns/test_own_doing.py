"""A rollout that goes on from a kept turn answers for what its own agent did, not for calls of tools before it."""

import asyncio
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent import runaway
from opencode_env.cli_agent.classification import Evidence, endpoint_failure, require_scorable
from opencode_env.cli_agent.guard import GuardedSession
from opencode_env.cli_agent.interception.callers import PROGRAM_CALLS, RECORDED_PROGRAM_CALLS
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.runaway import RUNAWAY_FAILURES
from opencode_env.cli_agent.traces import AnyTrace, agent_record
from opencode_env.kept_turns.continued import Continued
from opencode_env.kept_turns.keeping import RolloutTurns, TurnsConfig
from rollout_sandbox.confined import BubblewrapBackend, LocalSandboxConfig
from verifiers.v1.errors import ProviderError, RolloutError, SandboxError
from verifiers.v1.graph import MessageNode
from verifiers.v1.harness import HarnessSession
from verifiers.v1.harnesses.bash import BashHarness, BashHarnessConfig
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.types import AssistantMessage, Tool, ToolCall

from tests.rubrics.conftest import trace_of
from tests.turns.test_format import made
from tests.turns.test_keeping import KIND, STATE

FAILED = ModelCall(error=Error(type="ProviderError", message="it failed", status_code=500))
CALL = AssistantMessage(content="", tool_calls=[ToolCall(id="1", name="bash", arguments="{}")])
TOOL = Tool(name="bash", description="d", parameters={})


class Fence:
    """Cannot end the agent's processes, and the sandbox's user for them is no longer told apart."""

    spoilt = True

    async def end(self) -> None:
        raise SandboxError("pid 7")


def rollout(*before: ModelCall, acts: bool = False) -> AnyTrace:
    """The trace of one that goes on behind these calls and a call of a tool, or of a fresh one; its agent `acts`, or
    calls no tool."""
    trace, state = trace_of(vf.TaskData(idx=0, prompt="x")), Rollout()
    called = MessageNode(message=CALL, parent=None, sampled=True)
    if before:
        seeded = STATE | {"nodes": [called], "calls": list(before), "tools": [TOOL]}
        continued = Continued(made(3), seeded)
        state.before = continued.before
        state.features.append(RolloutTurns(KIND, TurnsConfig(), None, continued))
    state.begin(trace)
    trace.tools = [TOOL]
    trace.nodes.extend([called] if acts else [])
    return trace


ROLLOUTS: Sequence[tuple[Callable[[], AnyTrace], bool]] = [
    (rollout, False),
    (lambda: rollout(FAILED), False),
    (lambda: rollout(FAILED, acts=True), True),
]
each = pytest.mark.parametrize(("begun", "acts"), ROLLOUTS, ids=["fresh", "continued", "continued and acts"])


def session(trace: AnyTrace, fence: Any, runs: Callable[[], Any]) -> GuardedSession:
    """A guarded session whose agent does this."""

    class Inner(HarnessSession):
        async def turn(self, messages: Any = None) -> None:
            await runs()

    runtime = BubblewrapBackend(LocalSandboxConfig()).bind()
    harness: Any = BashHarness(BashHarnessConfig(id="bash"))
    context: Any = SimpleNamespace(client=None)
    return GuardedSession(Inner(harness, context, trace, runtime, "", "", {}, vf.TaskData(idx=0, prompt="x")), fence)


@each
async def test_an_endless_loop_of_failed_calls_is_the_endpoints_doing_before_a_call_of_a_tool(
    begun: Callable[[], AnyTrace], acts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runaway, "POLL_SECONDS", 0.01)
    trace = begun()

    async def loops() -> None:
        trace.calls.extend([FAILED] * RUNAWAY_FAILURES)
        await asyncio.Event().wait()

    async def ends() -> None:
        """There is nothing to end."""

    guarded = session(trace, SimpleNamespace(end=ends), loops)
    held: list[RolloutError] = [ProviderError("the server holds it")]
    monkeypatch.setattr(Rollout, "take_failure", lambda self: held.pop() if held else None)
    with pytest.raises(ProviderError) as raised:
        await guarded.turn()
    assert ("without end" in str(raised.value)) is not acts
    assert bool(held) is not acts


@each
async def test_processes_that_stay_are_the_infrastructures_before_a_call_of_a_tool(
    begun: Callable[[], AnyTrace], acts: bool
) -> None:
    async def nothing() -> None:
        """The agent is not run."""

    trace = begun()
    await session(trace, Fence(), nothing).close()
    assert trace.info["agent"]["survivors"] == "pid 7"
    assert trace.info["agent"]["survivors_own"] is acts


@each
def test_a_time_limit_finds_no_failed_call_from_before_the_kept_turn(begun: Callable[[], AnyTrace], acts: bool) -> None:
    """Its only call is still at the endpoint."""
    trace = begun()
    trace.stop("agent_timeout")
    require_scorable(trace)


def test_programs_that_asked_very_much_before_the_kept_turn_excuse_no_failure_of_the_endpoint() -> None:
    before = [FAILED] * RECORDED_PROGRAM_CALLS
    trace = rollout(*before, acts=True)
    trace.calls.extend(before)
    agent_record(trace)[PROGRAM_CALLS] = [*range(len(before))]
    trace.calls.extend([FAILED] * 3)
    assert isinstance(endpoint_failure(Evidence.of(trace, len(before))), ProviderError)
