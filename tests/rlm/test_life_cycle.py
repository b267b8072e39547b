"""Sub calls are bounded, queue in order, end with their rollout, and fail for their caller only."""

import asyncio
import json
import time

import opencode_env.cli_agent.interception.callers as callers
import pytest
from opencode_env.cli_agent.interception import SubSettings
from opencode_env.cli_agent.rollout import rollout_of
from verifiers.v1.interception.server import InterceptionServer

from tests.rlm.role_server import SUB, RoleServer, Rollout, role_server
from tests.support.machine import assert_no_longer
from tests.support.waiting import until

HANG = json.dumps({"hang": True})


def held(name: str) -> str:
    """A prompt whose answer waits until the test releases it."""
    return json.dumps({"name": name, "held": True})


def nothing_left(server: RoleServer, rollout: Rollout) -> None:
    """No session, task, queue place or record of the rollout is left on its server."""
    interception = server.interception
    assert isinstance(interception, InterceptionServer)
    assert interception.load == 0
    assert rollout_of(rollout.main).live_sub is None
    assert (rollout.side.slots.active, rollout.side.slots.waiting) == (0, 0)
    assert [*interception.sessions, *interception.state_sessions] == []
    assert [*rollout.session.tasks, *rollout.side.session.tasks] == []


async def test_a_rollout_has_so_many_sub_calls_at_once_and_the_rest_queue_in_order(server: RoleServer) -> None:
    async with server.rollout(SubSettings(max_parallel=3)) as rollout, server.rollout() as other:
        calls = []
        for number in range(9):
            calls.append(asyncio.create_task(rollout.sub_ask(held(str(number)))))
            await until(lambda: rollout.side.slots.active + rollout.side.slots.waiting == len(calls))
        await other.sub_ask("not behind the others")
        assert rollout.side.slots.waiting == 6
        server.model.released.set()
        assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
        prompts = [request.body["messages"][0]["content"] for request in server.model.requests[:9]]
        served = [int(json.loads(prompt)["name"]) // 3 for prompt in prompts if "held" in prompt]
        assert served == sorted(served)
        assert rollout.side.slots.peak == 3


async def test_a_main_call_never_waits_for_a_sub_call() -> None:
    async with role_server() as server, server.rollout(SubSettings(max_parallel=1)) as rollout:
        calls = [asyncio.create_task(rollout.sub_ask(held(str(number)))) for number in range(4)]
        await until(lambda: rollout.side.slots.waiting == 3)
        assert (await rollout.ask("quick")).status == 200
        assert (rollout.side.slots.active, rollout.side.slots.waiting) == (1, 3)
        server.model.released.set()
        await asyncio.gather(*calls)


async def test_calls_in_flight_are_drained_when_the_agent_has_finished_and_the_queue_is_sent_away(
    server: RoleServer,
) -> None:
    async def release_when_closed() -> None:
        await until(lambda: rollout.side.slots.closed)
        server.model.released.set()

    async with server.rollout(SubSettings(max_parallel=1)) as rollout:
        running = asyncio.create_task(rollout.sub_ask(held("running")))
        await until(lambda: rollout.side.slots.active == 1)
        queued = asyncio.create_task(rollout.sub_ask("queued"))
        await until(lambda: rollout.side.slots.waiting == 1)
        released = asyncio.create_task(release_when_closed())
    await released
    assert ((await running).status, (await queued).status, rollout.sub.num_turns) == (200, 409, 1)
    nothing_left(server, rollout)


async def test_draining_ends_at_its_bound(server: RoleServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callers, "DRAIN_SECONDS", 0.2)
    async with server.rollout() as rollout:
        call = asyncio.create_task(rollout.sub_ask(HANG))
        await until(lambda: server.model.active == 1)
        started = time.monotonic()
    taken = time.monotonic() - started
    assert taken > 0.15
    assert ((await call).status, rollout.main.metrics["sub_llm_errors"]) == (0, 1)
    assert [call.error is not None for call in rollout.sub.calls] == [True]
    nothing_left(server, rollout)
    assert_no_longer(taken, 2)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_of_the_agent_cancels_sub_calls_at_once(server: RoleServer, stream: bool) -> None:
    async with server.rollout() as rollout:
        call = asyncio.create_task(rollout.sub_ask(HANG, stream=stream))
        await until(lambda: server.model.active == 1)
        rollout.main.record_timeout("agent")
        started = time.monotonic()
    taken = time.monotonic() - started
    assert (await call).status == 0
    await until(lambda: server.model.active == 0)
    nothing_left(server, rollout)
    assert_no_longer(taken, 1)


async def test_a_cancelled_rollout_cancels_its_sub_calls_at_once(server: RoleServer) -> None:
    opened: asyncio.Future[Rollout] = asyncio.get_running_loop().create_future()

    async def run() -> None:
        async with server.rollout() as rollout:
            opened.set_result(rollout)
            await asyncio.Event().wait()

    running = asyncio.create_task(run())
    rollout = await opened
    call = asyncio.create_task(rollout.sub_ask(HANG))
    await until(lambda: server.model.active == 1)
    started = time.monotonic()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    taken = time.monotonic() - started
    assert (await call).status == 0
    nothing_left(server, rollout)
    assert_no_longer(taken, 1)


async def test_a_late_sub_call_is_refused_and_changes_no_trace(server: RoleServer) -> None:
    async with server.rollout() as rollout:
        await rollout.sub_ask("in time")
    before = (rollout.main.model_dump_json(), rollout.sub.model_dump_json())
    assert (await rollout.sub_ask("late")).status == (await rollout.ask("late")).status == 401
    assert (rollout.main.model_dump_json(), rollout.sub.model_dump_json()) == before


@pytest.mark.parametrize(("plan", "status"), [({"status": 429}, 429), ({"status": 500}, 500), ({"cut": True}, 502)])
async def test_a_failing_sub_call_is_an_error_to_its_caller_only(
    server: RoleServer, plan: dict[str, object], status: int
) -> None:
    async with server.rollout() as rollout:
        assert (await rollout.sub_ask(json.dumps(plan), stream=status == 502)).status == status
        assert (await rollout.sub_ask("fine")).status == (await rollout.ask("fine")).status == 200
        assert rollout.session.error is None
    assert [rollout.main.metrics[f"sub_llm_{name}"] for name in ("errors", "turns", "calls")] == [1, 1, 2]
    assert rollout.sub.ok
    assert len(rollout.main.info["rlm"]["failures"]) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_sub_call_that_takes_too_long_fails_with_a_message_that_opencode_does_not_retry(
    server: RoleServer, stream: bool
) -> None:
    async with server.rollout(SubSettings(timeout=0.3)) as rollout:
        answer = await rollout.sub_ask(HANG, stream=stream)
        assert (answer.status, "sub_timeout" in answer.text) == (400, True)
        await until(lambda: server.model.active == 0)
    assert [call.error.type for call in rollout.sub.calls if call.error] == ["ProviderError"]


@pytest.mark.parametrize("limit", ["max_total_tokens", "max_input_tokens", "max_output_tokens", "max_turns"])
async def test_a_spent_sub_budget_refuses_further_sub_calls_and_leaves_the_main_agent_alone(
    server: RoleServer, limit: str
) -> None:
    async with server.rollout(limits={limit: 1}) as rollout:
        calls = [asyncio.create_task(rollout.sub_ask(held(str(number)))) for number in range(3)]
        await until(lambda: server.model.active == 1 and rollout.side.slots.waiting == 2)
        server.model.released.set()
        served, *refused = sorted(await asyncio.gather(*calls), key=lambda answer: answer.status)
        assert served.status == 200, "a spent budget must not drop the call in flight"
        refused.append(await rollout.sub_ask("more"))
        assert [(answer.status, limit in answer.text) for answer in refused] == [(400, True)] * 3
        assert (await rollout.ask("main")).status == 200
    assert (rollout.sub.stop_condition, rollout.sub.ok) == (limit, True)
    assert rollout.main.stop_condition == "agent_completed"


async def test_a_conversation_that_had_all_its_turns_is_refused_and_others_go_on() -> None:
    async with role_server() as server, server.rollout(SubSettings(max_turns=1)) as rollout:
        history = [{"role": role, "content": "a"} for role in ("user", "assistant", "user")]
        refused = await rollout.ask(history, SUB)
        assert (refused.status, "sub_llm_max_turns" in refused.text) == (400, True)
        assert (await rollout.sub_ask("a")).status == 200


async def test_a_queued_call_whose_caller_has_left_is_never_made() -> None:
    async with role_server() as server, server.rollout(SubSettings(max_parallel=1)) as rollout:
        running = asyncio.create_task(rollout.sub_ask(held("running")))
        await until(lambda: rollout.side.slots.active == 1)
        gone = asyncio.create_task(rollout.sub_ask("gone"))
        await until(lambda: rollout.side.slots.waiting == 1)
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
        # Answered after the server has seen what came before it: the end of that caller's connection.
        assert (await rollout.ask("refused", {"X-RLM-Role": "boss"})).status == 400
        server.model.released.set()
        assert (await running).status == 200
        await until(lambda: rollout.side.slots.active == 0)
        assert len(server.model.requests) == 1


async def test_a_repeated_call_with_the_same_key_is_one_call(server: RoleServer) -> None:
    async with server.rollout() as rollout:
        key = {"Idempotency-Key": "one"}
        calls = [asyncio.create_task(rollout.sub_ask(held("a"), headers=key)) for _ in range(3)]
        await until(lambda: server.model.active == 1)
        server.model.released.set()
        assert [answer.status for answer in await asyncio.gather(*calls)] == [200] * 3
    assert len(server.model.requests) == 1
    assert "idempotency-key" not in server.model.requests[0].headers
    assert (rollout.main.metrics["sub_llm_calls"], rollout.sub.num_branches) == (1, 1)


async def test_refusals_without_end_do_not_fill_the_memory(server: RoleServer) -> None:
    async with server.rollout(SubSettings(max_depth=0)) as rollout:
        for _ in range(150):
            await rollout.sub_ask("x", headers={"X-RLM-Depth": "1"})
    assert (rollout.main.metrics["sub_llm_errors"], len(rollout.sub.calls)) == (150, 100)


async def test_a_rollout_without_sub_calls_has_zeros_and_nothing_on_its_sub_trace(server: RoleServer) -> None:
    async with server.rollout() as rollout:
        await rollout.ask("main only")
    sub = {name: value for name, value in rollout.main.metrics.items() if name.startswith("sub_")}
    assert sub
    assert (set(sub.values()), rollout.sub.calls) == ({0.0}, [])
