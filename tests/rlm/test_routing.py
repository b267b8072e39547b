"""The header, and nothing else, decides which of a rollout's two sessions serves a call."""

import asyncio
import random

import pytest
from multidict import CIMultiDict
from opencode_env.cli_agent.interception import MARK_HEADER, GatewayConfig, SubSettings
from verifiers.v1.interception import ElasticInterceptionPoolConfig as ElasticPool
from verifiers.v1.interception import InterceptionServerConfig as Server
from verifiers.v1.interception import StaticInterceptionPoolConfig as StaticPool

from tests.rlm.role_server import SUB, RoleServer, Rollout, role_server

SHAPES = [Server(), StaticPool(servers=[Server(), Server()]), ElasticPool(multiplex=1)]


@pytest.mark.parametrize("config", SHAPES, ids=lambda config: str(config.type))
async def test_interleaved_calls_of_many_rollouts_land_in_the_right_trace_with_the_right_model(config: object) -> None:
    async with role_server(config) as server:
        async with server.rollout() as one, server.rollout() as two, server.rollout() as three:
            rollouts = [one, two, three]
            plan = [(rollout, role, n) for rollout in rollouts for role in ("main", "sub") for n in range(6)]
            random.Random(5).shuffle(plan)
            await asyncio.gather(*(_one_call(rollout, role, n) for rollout, role, n in plan))
        for number, rollout in enumerate(rollouts):
            for trace, role, temperature in ((rollout.main, "main", 0.5), (rollout.sub, "sub", 0.9)):
                texts = sorted(str(node.message.content) for node in trace.nodes if node.sampled)
                assert texts == [f"echo {role} {rollout.main.id} {n}" for n in range(6)]
                assert {call.model for call in trace.calls} == {f"{role}-{number}"}
                used = {call.sampling.temperature for call in trace.calls if call.sampling}
                assert used == {temperature + number / 1000}
            metrics = rollout.main.metrics
            assert (metrics["main_turns"], metrics["sub_llm_turns"], metrics["sub_llm_calls"]) == (6, 6, 6)
        for request in server.model.requests:
            role, number = request.body["model"].split("-")
            word, identity, _ = request.body["messages"][0]["content"].split()
            assert (word, identity) == (role, rollouts[int(number)].main.id)
            start = {"main": 0.5, "sub": 0.9}[role]
            assert request.body["temperature"] == pytest.approx(start + int(number) / 1000)


async def _one_call(rollout: Rollout, role: str, number: int) -> None:
    headers = {"x-rlm-ROLE": role.upper()} if number % 2 else ({} if role == "main" else SUB)
    assert (await rollout.ask(f"{role} {rollout.main.id} {number}", headers)).status == 200


@pytest.mark.parametrize("values", [["judge"], [""], ["main, sub"], ["submarine"], ["main", "sub"], ["sub", "sub"]])
async def test_an_unknown_role_is_refused_with_a_clear_message_and_recorded(
    server: RoleServer, values: list[str]
) -> None:
    async with server.rollout() as rollout:
        answer = await rollout.ask("hello", CIMultiDict(("X-RLM-Role", value) for value in values))
        assert answer.status == 400
        assert "must be `main` or `sub`" in answer.text
    assert server.model.requests == []
    assert rollout.main.info["rlm"]["refused_roles"] == [answer.text]
    assert rollout.main.nodes == rollout.sub.nodes == []


async def test_no_routing_header_and_no_secret_of_the_rollout_travels_upstream(
    server: RoleServer, rollout: Rollout
) -> None:
    nosy = {
        "X-RLM-Depth": "1",
        "X-RLM-Anything": "x",
        "x-session-affinity": "ses_1",
        "x-parent-session-id": "ses_0",
        "x-api-key": rollout.secret,
        "x-custom": f"key={rollout.secret}",
        "x-feature": "not kept",
    }
    for role in ("main", "sub"):
        assert (await rollout.ask("hello", {**nosy, "X-RLM-Role": role})).status == 200
    sub_bearers = [key for key in getattr(server.interception, "sessions") if key != rollout.secret]  # noqa: B009
    for request in rollout.model.requests:
        assert "x-feature" not in request.headers
        everything = str(request.headers) + str(request.body)
        assert "x-rlm" not in everything.lower()
        assert [word for word in ("ses_", rollout.secret, *sub_bearers) if word in everything] == []


@pytest.mark.parametrize("filtered", [True, False])
async def test_no_mark_of_the_agents_program_travels_upstream(filtered: bool) -> None:
    async with role_server(gateway=GatewayConfig(filter_requests=filtered)) as server, server.rollout() as rollout:
        for headers in ({}, SUB):
            assert (await rollout.ask("hello", {MARK_HEADER: "run:guessed", **headers})).status == 200
        sent = {name.lower() for request in server.model.requests for name in request.headers}
        assert sent
        assert MARK_HEADER.lower() not in sent


async def test_no_header_reaches_another_rollouts_session() -> None:
    async with role_server() as server, server.rollout() as one, server.rollout() as two:
        ids = {"X-Session-ID": one.main.id, "x-verifiers-state-route": one.sub.id}
        for headers in ({}, SUB, {**SUB, **ids}):
            await two.ask("mine", headers)
        assert one.main.calls == one.sub.calls == []
        assert (await one.sub_ask("x", secret="wrong")).status == 401


async def test_a_forged_sub_role_is_charged_to_the_sub_budget_and_an_unmarked_call_is_the_mains() -> None:
    async with role_server() as server, server.rollout(limits={"max_turns": 1}) as rollout:
        assert (await rollout.sub_ask("forged")).status == 200
        refused = await rollout.sub_ask("again")
        assert (refused.status, "budget" in refused.text) == (400, True)
        assert (await rollout.ask("from a script")).status == 200
        assert (rollout.main.num_turns, rollout.sub.num_turns) == (1, 1)


async def test_a_conversation_deeper_than_allowed_is_refused() -> None:
    async with role_server() as server, server.rollout(SubSettings(max_depth=2)) as rollout:
        assert (await rollout.sub_ask("a", headers={"X-RLM-Depth": "2"})).status == 200
        refused = await rollout.sub_ask("b", headers={"X-RLM-Depth": "3"})
        assert (refused.status, "max_depth" in refused.text) == (400, True)
        assert (await rollout.sub_ask("c", headers={"X-RLM-Depth": "-1"})).status == 400


async def test_an_unmarked_first_call_fails_the_rollout_when_the_mark_is_demanded(rollout: Rollout) -> None:
    rollout.side.demanded_by = "OpenCode did not load the opencode-rlm plugin"
    for headers in ({}, {"X-RLM-Role": "main"}):
        answer = await rollout.ask("hello", headers)
        assert (answer.status, "did not load the opencode-rlm plugin" in answer.text) == (400, True)
    assert "did not load" in str(rollout.session.error)
    assert rollout.model.requests == []


async def test_a_script_may_leave_the_mark_out_once_the_plugin_was_seen(rollout: Rollout) -> None:
    rollout.side.demanded_by = "OpenCode did not load the opencode-rlm plugin"
    assert (await rollout.ask("hello", {"X-RLM-Role": "main"})).status == 200
    assert (await rollout.ask("from a script")).status == 200


async def test_sub_sessions_do_not_count_as_load_of_a_pool() -> None:
    pool = ElasticPool(multiplex=2)
    async with role_server(pool) as server, server.rollout() as one, server.rollout() as two, server.rollout() as three:
        assert one.url == two.url
        assert three.url != one.url


async def test_each_sub_conversation_is_a_branch_of_the_sub_trace() -> None:
    async with role_server() as server, server.rollout() as rollout:
        first = [{"role": "user", "content": "a"}]
        said = {"role": "assistant", "content": (await rollout.ask(first, SUB)).text}
        await rollout.ask([*first, said, {"role": "user", "content": "b"}], SUB)
        await rollout.sub_ask("other")
    assert rollout.sub.num_branches == 2
    assert [len(branch.messages) for branch in rollout.sub.branches] == [4, 2]
    assert rollout.main.metrics["sub_llm_turns"] == 3
    tally = rollout.side.session.tally
    assert tally.new_input_tokens == rollout.sub.num_input_tokens
    assert tally.completion_tokens == rollout.sub.num_output_tokens
