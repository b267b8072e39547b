"""A call that is sent again under its key is the same call, within its own rollout, and never a sample for nothing."""

import asyncio
import json
from typing import Any

import pytest

from tests.rlm.role_server import SUB, Rollout, role_server

KEY = {"Idempotency-Key": "step-1"}
RETRIED = (
    *("429", "500", "502", "503", "504", "524"),
    *("server error", "server_error", "rate limit", "overloaded", "try again"),
)
"""What in a refusal makes OpenCode send it again."""


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("headers", [{}, SUB])
async def test_a_key_that_comes_again_is_answered_without_a_sample(stream: bool, headers: dict[str, str]) -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 1}, limits={"max_turns": 1}) as rollout:
        first = await rollout.ask("a question", KEY | headers, stream=stream)
        again = [await rollout.ask("a question", KEY | headers, stream=stream) for _ in range(3)]
        assert first.status == 200
        assert {answer.body for answer in again} == {first.body}
        trace = rollout.sub if headers else rollout.main
        assert (len(server.model.requests), trace.num_turns, len(trace.calls)) == (1, 1, 1)
        assert rollout.main.info["gateway"]["repeated"] == 3
        assert "idempotency-key" not in server.model.requests[0].headers


async def test_the_answer_to_a_call_with_a_key_ends_with_the_one_event_that_holds_it_all(rollout: Rollout) -> None:
    keyed = await rollout.ask("one", KEY, stream=True)
    plain = await rollout.ask("two", stream=True)
    assert [part[:7] for part in keyed.body.split("\n\n")] == ["data: {", ""]
    assert [part[:7] for part in plain.body.split("\n\n")] == ["data: {", "data: [", ""]
    event = json.loads(keyed.body.removeprefix("data: "))
    (choice,) = event["choices"]
    assert (choice["delta"]["content"], choice["finish_reason"]) == ("echo one", "stop")
    assert event["usage"]["completion_tokens"] > 0


@pytest.mark.parametrize("first", ["answered", "on its way"])
async def test_a_key_with_another_body_is_refused_in_words_that_nobody_tries_again(
    rollout: Rollout, first: str
) -> None:
    plan = json.dumps({"held": first == "on its way"})
    call = asyncio.create_task(rollout.ask(plan, KEY))
    await rollout.model.wait_for_requests(1)
    if first == "answered":
        await call
    other = await rollout.ask("something else", KEY)
    rollout.model.released.set()
    assert ((await call).status, other.status) == (200, 400)
    assert "Idempotency-Key was reused" in other.text
    assert not [word for word in RETRIED if word in other.body.lower()]
    assert len(rollout.model.requests) == rollout.main.num_turns == 1


async def test_a_key_reaches_its_own_rollout_and_its_own_role_only() -> None:
    async with role_server() as server, server.rollout() as mine, server.rollout() as other:
        for rollout, headers in ((mine, KEY), (other, KEY), (mine, KEY | SUB)):
            assert (await rollout.ask("a question", headers)).status == 200
        assert len(server.model.requests) == 3
        assert (mine.main.num_turns, mine.sub.num_turns, other.main.num_turns) == (1, 1, 1)


async def test_a_call_that_failed_is_sampled_again_under_its_key(rollout: Rollout) -> None:
    failing = json.dumps({"status": 500})
    assert [(await rollout.ask(failing, KEY)).status for _ in range(2)] == [500, 500]
    assert len(rollout.model.requests) == 2


async def test_many_keys_hold_a_bounded_number_of_answers(rollout: Rollout) -> None:
    for number in range(150):
        await rollout.ask("a question", {"Idempotency-Key": f"key-{number}"})
    assert len(rollout.session.idempotent_requests) <= 64


async def test_a_repeat_is_never_sampled_by_itself() -> None:
    """The repeat has joined a call that was answered and forgotten before the repeat asked for it."""
    async with role_server() as server, server.rollout(budget={"max_turns": 3}) as rollout:
        forget_answers(rollout)
        await asyncio.gather(*(ask_thrice(rollout, number) for number in range(3)))
        assert len(server.model.requests) == rollout.main.num_turns <= 3


async def ask_thrice(rollout: Rollout, number: int) -> None:
    """One call and two repeats of it, all on their way at once."""
    prompt, key = json.dumps({"held": True, "number": number}), {"Idempotency-Key": f"step-{number}"}
    calls = [asyncio.create_task(rollout.ask(prompt, key)) for _ in range(3)]
    await rollout.model.wait_for_requests(1)
    rollout.model.released.set()
    await asyncio.gather(*calls)


def forget_answers(rollout: Rollout) -> None:
    """Let verifiers' replay find nothing, as after a failure or an eviction."""

    class Forgetful(dict[str, Any]):
        def get(self, key: str, default: Any = None) -> Any:
            return None

    rollout.session.idempotent_requests = Forgetful()
