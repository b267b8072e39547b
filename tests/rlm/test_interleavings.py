"""Any mix of calls, failures, callers that leave and rollouts that end: one answer each, and all counts right."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from opencode_env.cli_agent.interception import SubSettings
from opencode_env.cli_agent.rollout import rollout_of

from tests.rlm.role_server import SUB, Answer, RoleServer, Rollout, role_server
from tests.support.sizes import size
from tests.support.waiting import PATIENCE_SECONDS, until

PLACES = 3


@dataclass(frozen=True)
class Call:
    """One planned call."""

    role: Literal["main", "sub", "bad"]
    rollout: int
    after: float
    """Seconds before it is sent."""
    plan: dict[str, Any]
    stream: bool
    leaves: float | None
    """Seconds after which its caller hangs up."""


@dataclass(frozen=True)
class Story:
    """One planned life of some rollouts."""

    calls: Sequence[Call]
    ends: Sequence[tuple[float, Literal["finished", "timeout", "cancelled"]]]


_soon = st.floats(0, 0.12)
_plans = st.one_of(
    st.just({}),
    st.builds(lambda delay: {"delay": round(delay, 3)}, st.floats(0, 0.1)),
    st.sampled_from([{"status": 429}, {"status": 500}, {"hang": True}, {"cut": True}]),
)
_calls = st.builds(
    Call,
    st.sampled_from(["main", "sub", "sub", "sub", "bad"]),
    st.integers(0, 2),
    _soon,
    _plans,
    st.booleans(),
    st.none() | _soon,
)
_ends = st.tuples(st.floats(0.02, 0.3), st.sampled_from(["finished", "timeout", "cancelled"]))
_stories = st.builds(Story, st.lists(_calls, max_size=24), st.lists(_ends, min_size=3, max_size=3))


@settings(max_examples=size(20, 400), deadline=None, suppress_health_check=list(HealthCheck))
@given(_stories)
def test_every_call_is_answered_once_every_count_is_right_and_nothing_is_left(story: Story) -> None:
    asyncio.run(_live(story))


async def _live(story: Story) -> None:
    async with role_server() as server:
        quiet = asyncio.all_tasks()
        opening: list[asyncio.Future[Rollout]] = [asyncio.get_running_loop().create_future() for _ in story.ends]
        rollouts = [
            asyncio.create_task(_rollout(server, opened, *end)) for opened, end in zip(opening, story.ends, strict=True)
        ]
        running = [await rollout for rollout in opening]
        async with asyncio.timeout(PATIENCE_SECONDS):  # nothing may hang
            answers = await asyncio.gather(
                *(_call(running[call.rollout], number, call) for number, call in enumerate(story.calls))
            )
            await asyncio.gather(*rollouts, return_exceptions=True)
        # Calls whose rollout has ended are cancelled; the server does not wait until they have noticed.
        await _only(quiet)
        _check_answers(story, answers)
        for number, rollout in enumerate(running):
            _check_rollout(rollout, number, story, answers)
        interception: Any = server.interception
        assert not interception.sessions
        assert interception.load == 0


async def _rollout(server: RoleServer, opened: asyncio.Future[Rollout], after: float, end: str) -> None:
    async with server.rollout(SubSettings(max_parallel=PLACES, timeout=0.5)) as rollout:
        opened.set_result(rollout)
        await asyncio.sleep(after)
        if end == "timeout":
            rollout.main.record_timeout("agent")
        elif end == "cancelled":
            raise asyncio.CancelledError


async def _call(rollout: Rollout, number: int, call: Call) -> Answer | None:
    """The answer, or None when the caller left."""
    await asyncio.sleep(call.after)
    prompt = json.dumps({"number": number, "role": call.role, **call.plan})
    headers = {"main": {}, "sub": SUB, "bad": {"X-RLM-Role": "boss"}}[call.role]
    try:
        async with asyncio.timeout(call.leaves):
            return await rollout.ask(prompt, headers, stream=call.stream)
    except TimeoutError:
        return None


def _check_answers(story: Story, answers: Sequence[Answer | None]) -> None:
    for call, answer in zip(story.calls, answers, strict=True):
        if answer is None:
            continue
        allowed = {0, 200, 400, 401, 409, 429, 500, 502, 503}
        assert answer.status in allowed, answer
        if call.role == "bad":
            assert answer.status in (0, 400, 401)
        if answer.status == 200:
            assert "hang" not in call.plan
            assert "status" not in call.plan


def _check_rollout(rollout: Rollout, number: int, story: Story, answers: Sequence[Answer | None]) -> None:
    metrics = {name: value or 0 for name, value in rollout.main.metrics.items()}
    sub = rollout.sub
    for trace, role in ((rollout.main, "main"), (sub, "sub")):
        asked = [json.loads(str(node.message.content)) for node in trace.nodes if node.message.role == "user"]
        assert {prompt["role"] for prompt in asked} <= {role}
        assert {call.model for call in trace.calls if call.model} <= {f"{role}-{number}"}
        committed = {prompt["number"] for prompt in asked}
        answered = {
            index
            for index, (call, answer) in enumerate(zip(story.calls, answers, strict=True))
            if (call.role, call.rollout) == (role, number) and answer is not None and answer.status == 200
        }
        assert answered <= committed, "an answer that the trace does not have"
        assert trace.num_turns == len(committed), "a turn that nobody asked for"
    assert metrics["sub_llm_turns"] == sub.num_turns
    assert metrics["main_turns"] == rollout.main.num_turns
    assert metrics["sub_llm_calls"] == len(sub.calls) == metrics["sub_llm_turns"] + metrics["sub_llm_errors"]
    assert metrics["sub_llm_errors"] == sum(call.error is not None for call in sub.calls)
    assert metrics["sub_llm_completion_tokens"] == sum(call.usage.completion_tokens for call in sub.calls if call.usage)
    assert metrics["main_completion_tokens"] == sum(c.usage.completion_tokens for c in rollout.main.calls if c.usage)
    assert metrics["sub_llm_max_parallel"] <= PLACES
    assert (rollout.side.slots.active, rollout.side.slots.waiting) == (0, 0)
    assert rollout_of(rollout.main).live_sub is None
    assert not rollout.session.tasks
    assert not rollout.side.session.tasks


async def _only(expected: set[asyncio.Task[Any]]) -> None:
    """Every task of the rollouts is gone (idle keep-alive connections of the servers aside)."""

    def left() -> set[asyncio.Task[Any]]:
        return {task for task in asyncio.all_tasks() - expected if "RequestHandler.start" not in repr(task)}

    try:
        await until(lambda: not left())
    except TimeoutError:
        raise AssertionError(f"tasks are left: {left()}") from None
