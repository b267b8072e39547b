"""Sub calls are bounded, queue in order, end with their rollout, and fail for their caller only."""

import asyncio
import json
import time

import opencode_env.cli_agent.interception.sub_rollout as sub_rollout_module
import pytest
from opencode_env.cli_agent.interception import SubSettings, sub_rollout_of
from verifiers.v1.interception.server import InterceptionServer

from tests.rlm.role_server import SUB, Line, Switchboard, eventually, switchboard


def slow(name: str, seconds: float) -> str:
    """A prompt that takes so long to answer."""
    return json.dumps({"name": name, "delay": seconds})


def nothing_left(board: Switchboard, line: Line) -> None:
    """No session, task, queue place or record of the rollout is left on its server."""
    server = board.interception
    assert isinstance(server, InterceptionServer)
    assert server.load == 0
    assert not server.sessions
    assert not server.state_sessions
    assert sub_rollout_of(line.main) is None
    assert (line.side.gate.active, line.side.gate.waiting) == (0, 0)
    assert not line.session.tasks
    assert not line.side.session.tasks


async def test_a_rollout_has_so_many_sub_calls_at_once_and_the_rest_queue_in_order() -> None:
    async with switchboard() as board, board.line(SubSettings(max_parallel=3)) as line, board.line() as other:
        calls = []
        for number in range(9):
            calls.append(asyncio.create_task(line.sub_ask(slow(str(number), 0.2))))
            arrived = number + 1
            await eventually(lambda arrived=arrived: line.side.gate.active + line.side.gate.waiting == arrived)
        await other.sub_ask("not behind the others")
        assert line.side.gate.waiting > 0
        assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
        served = [
            json.loads(r.body["messages"][0]["content"])["name"]
            for r in board.model.requests[:9]
            if "delay" in str(r.body)
        ]
        assert [int(name) // 3 for name in served] == sorted(int(name) // 3 for name in served)
        assert line.side.gate.peak == 3


async def test_a_main_call_never_waits_for_a_sub_call() -> None:
    async with switchboard() as board, board.line(SubSettings(max_parallel=1)) as line:
        calls = [asyncio.create_task(line.sub_ask(slow(str(number), 0.5))) for number in range(4)]
        await eventually(lambda: line.side.gate.waiting == 3)
        started = time.monotonic()
        assert (await line.ask("quick")).status == 200
        assert time.monotonic() - started < 0.4
        await asyncio.gather(*calls)


async def test_calls_in_flight_are_drained_when_the_agent_has_finished_and_the_queue_is_sent_away() -> None:
    async with switchboard() as board:
        async with board.line(SubSettings(max_parallel=1)) as line:
            running = asyncio.create_task(line.sub_ask(slow("running", 0.3)))
            await eventually(lambda: line.side.gate.active == 1)
            queued = asyncio.create_task(line.sub_ask("queued"))
            await eventually(lambda: line.side.gate.waiting == 1)
        assert (await running).status == 200
        assert (await queued).status == 409
        assert line.sub.num_turns == 1
        nothing_left(board, line)


async def test_draining_ends_at_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sub_rollout_module, "DRAIN_SECONDS", 0.2)
    async with switchboard() as board:
        async with board.line() as line:
            call = asyncio.create_task(line.sub_ask(json.dumps({"hang": True})))
            await eventually(lambda: board.model.active == 1)
            started = time.monotonic()
        assert 0.15 < time.monotonic() - started < 2
        assert (await call).status == 0
        assert line.main.metrics["sub_llm_errors"] == 1
        assert [call.error is not None for call in line.sub.calls] == [True]
        nothing_left(board, line)


@pytest.mark.parametrize("stream", [False, True])
async def test_a_timeout_of_the_agent_cancels_sub_calls_at_once(stream: bool) -> None:
    async with switchboard() as board:
        async with board.line() as line:
            call = asyncio.create_task(line.sub_ask(json.dumps({"hang": True}), stream=stream))
            await eventually(lambda: board.model.active == 1)
            line.main.record_timeout("agent")
            started = time.monotonic()
        assert time.monotonic() - started < 1
        assert (await call).status == 0
        await eventually(lambda: board.model.active == 0)
        nothing_left(board, line)


async def test_a_cancelled_rollout_cancels_its_sub_calls_at_once() -> None:
    async with switchboard() as board:
        opened: asyncio.Future[Line] = asyncio.get_running_loop().create_future()

        async def rollout() -> None:
            async with board.line() as line:
                opened.set_result(line)
                await asyncio.Event().wait()

        running = asyncio.create_task(rollout())
        line = await opened
        call = asyncio.create_task(line.sub_ask(json.dumps({"hang": True})))
        await eventually(lambda: board.model.active == 1)
        started = time.monotonic()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert time.monotonic() - started < 1
        assert (await call).status == 0
        nothing_left(board, line)


async def test_a_late_sub_call_is_refused_and_changes_no_trace() -> None:
    async with switchboard() as board:
        async with board.line() as line:
            await line.sub_ask("in time")
        before = (line.main.model_dump_json(), line.sub.model_dump_json())
        assert (await line.sub_ask("late")).status == 401
        assert (await line.ask("late")).status == 401
        assert (line.main.model_dump_json(), line.sub.model_dump_json()) == before


@pytest.mark.parametrize(("plan", "status"), [({"status": 429}, 429), ({"status": 500}, 500), ({"cut": True}, 502)])
async def test_a_failing_sub_call_is_an_error_to_its_caller_only(plan: dict[str, object], status: int) -> None:
    async with switchboard() as board:
        async with board.line() as line:
            assert (await line.sub_ask(json.dumps(plan), stream=status == 502)).status == status
            assert (await line.sub_ask("fine")).status == 200
            assert (await line.ask("fine")).status == 200
            assert line.session.error is None
        assert (line.main.metrics["sub_llm_errors"], line.main.metrics["sub_llm_turns"]) == (1, 1)
        assert line.main.metrics["sub_llm_calls"] == 2
        assert line.sub.ok
        assert len(line.main.info["rlm"]["failures"]) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_sub_call_that_takes_too_long_fails_with_a_message_that_opencode_does_not_retry(stream: bool) -> None:
    async with switchboard() as board:
        async with board.line(SubSettings(timeout=0.3)) as line:
            answer = await line.sub_ask(json.dumps({"hang": True}), stream=stream)
            assert answer.status == 400
            assert "sub_timeout" in answer.text
            await eventually(lambda: board.model.active == 0)
        assert [call.error.type for call in line.sub.calls if call.error] == ["ProviderError"]


@pytest.mark.parametrize("limit", ["max_total_tokens", "max_input_tokens", "max_output_tokens", "max_turns"])
async def test_a_spent_sub_budget_refuses_further_sub_calls_and_leaves_the_main_agent_alone(limit: str) -> None:
    async with switchboard() as board:
        async with board.line(limits={limit: 1}) as line:
            together = await asyncio.gather(*(line.sub_ask(slow(str(number), 0.2)) for number in range(3)))
            assert {answer.status for answer in together} == {200}, "a spent budget must not drop calls in flight"
            refused = await line.sub_ask("more")
            assert (refused.status, limit in refused.text) == (400, True)
            assert (await line.ask("main")).status == 200
        assert line.sub.stop_condition == limit
        assert line.sub.ok
        assert line.main.stop_condition == "agent_completed"


async def test_a_conversation_that_had_all_its_turns_is_refused_and_others_go_on() -> None:
    async with switchboard() as board, board.line(SubSettings(max_turns=1)) as line:
        history = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ]
        refused = await line.ask(history, SUB)
        assert (refused.status, "sub_llm_max_turns" in refused.text) == (400, True)
        assert (await line.sub_ask("a")).status == 200


async def test_a_queued_call_whose_caller_has_left_is_never_made() -> None:
    async with switchboard() as board, board.line(SubSettings(max_parallel=1)) as line:
        running = asyncio.create_task(line.sub_ask(slow("running", 0.4)))
        await eventually(lambda: line.side.gate.active == 1)
        gone = asyncio.create_task(line.sub_ask("gone"))
        await eventually(lambda: line.side.gate.waiting == 1)
        gone.cancel()
        assert (await running).status == 200
        await eventually(lambda: line.side.gate.active == 0)
        assert len(board.model.requests) == 1


async def test_a_repeated_call_with_the_same_key_is_one_call() -> None:
    async with switchboard() as board:
        async with board.line() as line:
            key = {"Idempotency-Key": "one"}
            answers = await asyncio.gather(*(line.sub_ask(slow("a", 0.2), headers=key) for _ in range(3)))
            assert [answer.status for answer in answers] == [200] * 3
        assert len(board.model.requests) == 1
        assert "idempotency-key" not in board.model.requests[0].headers
        assert (line.main.metrics["sub_llm_calls"], line.sub.num_branches) == (1, 1)


async def test_refusals_without_end_do_not_fill_the_memory() -> None:
    async with switchboard() as board:
        async with board.line(SubSettings(max_depth=0)) as line:
            for _ in range(150):
                await line.sub_ask("x", headers={"X-RLM-Depth": "1"})
        assert line.main.metrics["sub_llm_errors"] == 150
        assert len(line.sub.calls) == 100


async def test_a_rollout_without_sub_calls_has_zeros_and_nothing_on_its_sub_trace() -> None:
    async with switchboard() as board:
        async with board.line() as line:
            await line.ask("main only")
        sub = {name: value for name, value in line.main.metrics.items() if name.startswith("sub_")}
        assert set(sub.values()) == {0.0}
        assert len(sub) == 7
        assert line.sub.calls == []
