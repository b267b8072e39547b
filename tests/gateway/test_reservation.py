"""A call reserves its share before it is served, so that a limit holds for any number of calls at once."""

import asyncio
import json
from collections import Counter
from collections.abc import Sequence

import pytest
from opencode_env.cli_agent.interception import Gateway
from opencode_env.cli_agent.interception.call_limits import is_gone

from tests.rlm.role_server import SUB, Answer, RoleServer, Rollout, role_server
from tests.support.waiting import settled, until

HELD = json.dumps({"held": True})
CALLS = [f"call {number}" for number in range(100)]


def held(count: int) -> list[str]:
    """As many prompts whose answers wait until the test releases them."""
    return [json.dumps({"held": True, "number": number}) for number in range(count)]


async def ask_all(rollout: Rollout, prompts: Sequence[str], **options: object) -> Counter[int]:
    """All calls at once; the answers by status."""
    answers: list[Answer] = await asyncio.gather(*(rollout.ask(prompt, **options) for prompt in prompts))  # type: ignore[arg-type]
    return Counter(answer.status for answer in answers)


def gateway_of(server: RoleServer, rollout: Rollout) -> Gateway:
    """The gateway of one rollout."""
    found: Gateway = getattr(server.interception, "_gateways")[rollout.secret]  # noqa: B009
    return found


def left(server: RoleServer, rollout: Rollout) -> bool:
    """Whether the server knows that nobody waits for the rollout's only call any more."""
    ((request, _),) = getattr(gateway_of(server, rollout).calls, "_under_way").values()  # noqa: B009
    return is_gone(request)


@pytest.mark.parametrize("stream", [True, False])
async def test_of_a_hundred_calls_at_once_a_turn_limit_of_three_serves_three(stream: bool) -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 3}) as rollout:
        statuses = await ask_all(rollout, CALLS, stream=stream)
        assert statuses == {200: 3, 400: 97}
        assert len(server.model.requests) == rollout.main.num_turns == 3
        assert rollout.main.stop_condition == "max_turns"


async def test_equal_calls_at_once_are_no_way_around_the_limit() -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 3}) as rollout:
        statuses = await ask_all(rollout, ["the same"] * 100)
        assert statuses[200] == len(server.model.requests) == rollout.main.num_turns == 3


@pytest.mark.parametrize("headers", [{"Idempotency-Key": "{}"}, {"x-stainless-retry-count": "1"}])
async def test_neither_a_key_nor_the_mark_of_a_retry_is_a_way_around_the_limit(headers: dict[str, str]) -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 3}) as rollout:
        sent = [{name: value.format(number) for name, value in headers.items()} for number in range(100)]
        await asyncio.gather(*(rollout.ask(f"call {number}", sent[number]) for number in range(100)))
        assert len(server.model.requests) == rollout.main.num_turns == 3


@pytest.mark.parametrize("limit", ["max_output_tokens", "max_input_tokens", "max_total_tokens"])
async def test_a_token_budget_is_passed_by_one_call_at_most(limit: str) -> None:
    async with role_server() as server, server.rollout(budget={limit: 60}) as rollout:
        await ask_all(rollout, [f"call {number} with some words" for number in range(100)])
        name = {"max_output_tokens": "completion_tokens"}.get(limit, limit.removeprefix("max_"))
        spent = [getattr(call.usage, name) for call in rollout.main.calls]
        assert sum(spent) >= 60
        assert sum(spent) - max(spent) < 60
        assert rollout.main.stop_condition == limit
        assert len(server.model.requests) == len(spent)


@pytest.mark.parametrize("limit", ["max_turns", "max_output_tokens"])
async def test_the_budget_of_the_sub_seat_holds_for_calls_at_once_too(limit: str) -> None:
    async with role_server() as server, server.rollout(limits={limit: 3}) as rollout:
        statuses = await ask_all(rollout, CALLS, headers=SUB)
        assert statuses[200] == len(server.model.requests) == rollout.sub.num_turns <= 3
        assert rollout.main.stop_condition is None


@pytest.mark.parametrize("budget", [{}, {"max_turns": 100}, {"max_output_tokens": 100_000}])
async def test_parallel_sub_agents_are_not_serialised(budget: dict[str, int]) -> None:
    async with role_server() as server, server.rollout(budget=budget) as rollout:
        assert (await rollout.ask("the task is given to sub-agents")).status == 200
        calls = asyncio.create_task(ask_all(rollout, held(10)))
        await until(lambda: server.model.active == 10)
        server.model.released.set()
        assert await calls == {200: 10}


async def test_no_more_main_calls_are_at_the_model_at_once_than_allowed(rollout: Rollout) -> None:
    calls = asyncio.create_task(ask_all(rollout, held(40)))
    await until(lambda: rollout.model.active == 16)
    await settled(lambda: rollout.model.active)
    assert rollout.model.active == 16
    rollout.model.released.set()
    assert await calls == {200: 40}
    assert rollout.model.peak_active == 16


async def test_a_call_that_fails_gives_its_turn_to_the_next() -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 1}) as rollout:
        statuses = await ask_all(rollout, [json.dumps({"status": 500, "number": number}) for number in range(3)])
        assert statuses == {500: 3}
        assert (await rollout.ask("well")).status == 200
        assert (await rollout.ask("too many")).status == 400
        assert rollout.main.num_turns == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_who_lost_its_connection_and_asks_again_joins_its_own_call(stream: bool) -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 1}) as rollout:
        lost = asyncio.create_task(rollout.ask(HELD, stream=stream))
        await server.model.wait_for_requests(1)
        lost.cancel()
        await asyncio.gather(lost, return_exceptions=True)
        # The server learns of the lost connection in its own time.
        await until(lambda: left(server, rollout))
        again = asyncio.create_task(rollout.ask(HELD, stream=stream))
        await until(lambda: gateway_of(server, rollout).open == 2)
        server.model.released.set()
        assert (await again).status == 200
        assert len(server.model.requests) == rollout.main.num_turns == 1


async def test_equal_calls_of_callers_that_are_there_are_samples(rollout: Rollout) -> None:
    calls = asyncio.create_task(ask_all(rollout, [HELD, HELD]))
    await rollout.model.wait_for_requests(2)
    rollout.model.released.set()
    assert await calls == {200: 2}
    assert rollout.main.num_turns == 2


async def test_a_key_joins_two_sendings_of_one_call() -> None:
    async with role_server() as server, server.rollout(budget={"max_turns": 1}) as rollout:
        calls = [asyncio.create_task(rollout.ask(HELD, {"Idempotency-Key": "step-1"})) for _ in range(3)]
        await server.model.wait_for_requests(1)
        server.model.released.set()
        answers = await asyncio.gather(*calls)
        assert {(answer.status, answer.body) for answer in answers} == {(200, answers[0].body)}
        assert len(server.model.requests) == rollout.main.num_turns == 1
