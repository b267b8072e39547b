"""What the environment makes of an agent's session that misbehaves."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import verifiers.v1 as vf
from opencode_env.cli_agent import runaway
from opencode_env.cli_agent.classification import fail_stage_timeout, zero_spoilt
from opencode_env.cli_agent.guard import GuardedSession, guarded, guarded_task
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.cli_agent.rollout import RolloutFeature, rollout_of
from opencode_env.cli_agent.runaway import RUNAWAY_FAILURES, led_nowhere
from opencode_env.cli_agent.traces import AnyTrace
from rollout_sandbox.confined import BubblewrapBackend, LocalSandboxConfig
from rollout_sandbox.errors import SandboxEndedError
from rollout_sandbox.toolbox.scoring import scoring_of
from verifiers.v1.errors import HarnessError, SandboxError
from verifiers.v1.graph import MessageNode
from verifiers.v1.harness import HarnessSession
from verifiers.v1.harnesses.bash import BashHarness, BashHarnessConfig
from verifiers.v1.trace import Error, ModelCall
from verifiers.v1.types import AssistantMessage, UserMessage

from tests.history.asking import OPENCODE
from tests.history.test_sections import AT, TASK, agent_of, called, head, said
from tests.rlm.role_server import SUB, role_server
from tests.rubrics.conftest import trace_of

OVERFLOW = Error(type="ProviderError", message="maximum context length is 10 tokens, you have 11", status_code=400)
Turn = Callable[[AnyTrace], Awaitable[None]]


def session(turn: Turn, trace: AnyTrace | None = None) -> GuardedSession:
    """A guarded session whose agent does this; its sandbox was never started, so there is nothing to end in it."""
    trace = trace or trace_of(vf.TaskData(idx=0, prompt="x"))

    class Inner(HarnessSession):
        async def turn(self, messages: Any = None) -> None:
            await turn(self.trace)

    runtime = BubblewrapBackend(LocalSandboxConfig()).bind()
    harness: Any = BashHarness(BashHarnessConfig(id="bash"))
    context: Any = SimpleNamespace(client=None)
    inner = Inner(harness, context, trace, runtime, "", "", {}, vf.TaskData(idx=0, prompt="x"))
    return GuardedSession(inner, ProcessFence(runtime))


async def raises_key_error(trace: AnyTrace) -> None:
    raise KeyError("a bug")


async def cancels_itself(trace: AnyTrace) -> None:
    raise asyncio.CancelledError


async def says_nothing(trace: AnyTrace) -> None:
    """An agent that ends without asking the model."""


@pytest.mark.parametrize(
    ("turn", "problem"),
    [
        (raises_key_error, "a bug"),
        (cancels_itself, "cancelled its own run"),
        (says_nothing, "without a single model call"),
    ],
)
async def test_whatever_breaks_in_a_session_is_a_harness_error_with_its_metric(turn: Turn, problem: str) -> None:
    guarded_session = session(turn)
    with pytest.raises(HarnessError, match=problem):
        await guarded_session.turn()
    await guarded_session.close()
    assert guarded_session.trace.metrics["agent_error"] == 1.0


async def test_a_full_window_that_is_tried_again_for_ever_is_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runaway, "POLL_SECONDS", 0.01)

    async def tries_again(trace: AnyTrace) -> None:
        trace.nodes.append(node(AssistantMessage(content="a"), None))
        trace.calls.extend(ModelCall(error=OVERFLOW) for _ in range(RUNAWAY_FAILURES))
        await asyncio.Event().wait()

    guarded_session = session(tries_again)
    await guarded_session.turn()
    await guarded_session.close()
    assert guarded_session.trace.stop_condition == "max_total_tokens"
    assert guarded_session.trace.metrics["context_overflow"] == 1.0


def node(message: Any, parent: int | None) -> MessageNode:
    return MessageNode(message=message, parent=parent, sampled=isinstance(message, AssistantMessage))


def test_whole_answers_to_one_prompt_are_samples_and_an_agent_that_answers_itself_leads_nowhere() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    answer = AssistantMessage(content="a")
    trace.nodes = [node(UserMessage(content="x"), None), node(answer, 0), node(answer, 0), node(answer, 1)]
    assert led_nowhere(trace, ModelCall(node=1, finish_reason="stop")) is None
    assert led_nowhere(trace, ModelCall(node=2, finish_reason="stop")) is None
    assert led_nowhere(trace, ModelCall(node=2, finish_reason=None)) == 0
    assert led_nowhere(trace, ModelCall(node=3, finish_reason="stop")) == 0


async def test_the_tasks_own_scoring_does_not_start_when_a_score_is_refused() -> None:
    started = []

    class Scored(vf.Task[vf.TaskData]):
        async def score(self, trace: Any, runtime: Any = None, deployment: Any = None) -> None:
            started.append(trace)

    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    task = guarded_task(Scored(vf.TaskData(idx=0, prompt="x")))
    await task.score(trace)
    trace.info["agent"] = {"survivors": "pid 7"}
    with pytest.raises(SandboxError, match="could not be ended: pid 7") as raised:
        await task.score(trace)
    assert type(raised.value) is SandboxError
    trace.info["agent"]["survivors_own"] = True
    with pytest.raises(SandboxEndedError, match="could not be ended: pid 7"):
        await task.score(trace)
    assert started == [trace]


def test_a_guarded_harness_keeps_its_state_and_needs_no_container_where_it_is_contained() -> None:
    class Prepared(BashHarness):
        NEEDS_CONTAINER = True

        def __init__(self, config: BashHarnessConfig, extra: str) -> None:
            super().__init__(config)
            self.extra = extra

    harness = Prepared(BashHarnessConfig(id="bash"), "kept")
    inside, outside = guarded(harness, contained=True), guarded(harness, contained=False)
    assert (inside.NEEDS_CONTAINER, outside.NEEDS_CONTAINER, harness.NEEDS_CONTAINER) == (False, True, True)
    assert isinstance(inside, Prepared)
    assert inside.extra == "kept"


async def test_a_guarded_task_is_given_what_its_methods_ask_for() -> None:
    given: list[Any] = []

    class Old(vf.Task[vf.TaskData]):
        async def finalize(self, runtime: Any) -> None:  # type: ignore[override]  # verifiers passes by name
            given.append(runtime)

        async def score(self, trace: Any, runtime: Any = None) -> None:  # type: ignore[override, unused-ignore]
            given.append(runtime)

    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    task: Any = guarded_task(Old(vf.TaskData(idx=0, prompt="x")))
    await task.finalize(trace, "box", "deployment")
    await task.score(trace, "box", "deployment")
    assert given == ["box", "box"]


class Slow(vf.Task[vf.TaskData]):
    """Its scoring takes for ever: in a program, or beside one."""

    programs = True

    @vf.reward
    async def worked(self, trace: AnyTrace) -> float:
        with scoring_of(trace).agents_time() if self.programs else nullcontext():
            await asyncio.Event().wait()
        return 1.0


def test_an_agent_that_outlived_its_end_is_rewarded_nothing() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.record_reward("solved", 1.0)
    zero_spoilt(trace)
    assert trace.reward == 1.0
    trace.info["agent"] = {"outlived": True}
    zero_spoilt(trace)
    assert trace.reward == 0.0


async def test_closing_a_session_ends_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[ProcessFence] = []

    async def end(fence: ProcessFence) -> None:
        ended.append(fence)

    monkeypatch.setattr(ProcessFence, "end", end)
    guarded_session = session(says_nothing)
    await guarded_session.close()
    assert ended == [guarded_session._fence]


async def test_a_feature_that_fails_at_the_agents_end_leaves_no_agent_and_no_feature_untold() -> None:
    guarded_session, told = session(says_nothing), []

    class Fails(RolloutFeature):
        async def agent_ended(self) -> None:
            raise OSError("no space left")

    class Listens(RolloutFeature):
        async def agent_ended(self) -> None:
            told.append(self)

    rollout = rollout_of(guarded_session.trace)
    rollout.features = [Fails(), Listens()]
    rollout.session = guarded_session
    with pytest.raises(OSError, match="no space left"):
        await guarded_session.close()
    assert "num_turns" in guarded_session.trace.metrics  # which comes after the end of the agent's processes
    assert len(told) == 1
    with pytest.raises(OSError, match="no space left"):
        await rollout.end()
    assert rollout.session is None


async def test_a_scoring_whose_time_programs_of_the_agents_used_is_a_0_and_another_is_an_error() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.ok = True
    await guarded_task(Slow(vf.TaskData(idx=0, prompt="x")), 0.01).score(trace)
    fail_stage_timeout(trace)
    zero_spoilt(trace)
    assert (trace.ok, trace.reward, trace.stop_condition) == (True, 0.0, None)
    assert {name: reward.score for name, reward in trace.rewards.items() if reward is not None} == {"worked": 0.0}
    assert "scoring took longer" in trace.info["agent"]["scoring_overrun"]

    class Waits(Slow):
        programs = False

    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    trace.ok = True
    await guarded_task(Waits(vf.TaskData(idx=0, prompt="x")), 0.01).score(trace)
    fail_stage_timeout(trace)
    assert trace.last_error is not None
    assert trace.last_error.type == "TaskError"


@pytest.mark.parametrize("options", [{}, SUB], ids=["main", "sub"])
async def test_what_is_not_to_train_is_masked_on_the_trace_of_sub_agents_too(options: Mapping[str, str]) -> None:
    async with role_server(strict=True) as server, server.rollout(harness=OPENCODE) as rollout:
        agent, trace = agent_of(rollout), rollout.sub if options else rollout.main
        agent.will_say(called(AT), said("Much."), said("So."))
        await agent.asks(TASK, **options)
        assert (await agent.summarises(**options)).status == 200
        await agent.asks(*head("Much."), **options)
        answers = [node for node in trace.nodes if node.sampled]
        for node in answers:
            node.mask = [True]  # as a training client leaves it
        gateway = rollout_of(rollout.main).gateway
        assert gateway is not None
        gateway.summaries.trains = "sections"
        await session(says_nothing, rollout.main).close()
        assert trace.info["history"]["trains"] == "sections"
        assert [list(node.mask) for node in answers] == [[True], [False], [True]]
