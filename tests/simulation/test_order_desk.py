"""The order desk: its reward is on the state of the orders at the end, also in a rollout with a user who says stop."""

from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from opencode_env.scripted_model import ChatRequest, WorldsPolicy
from opencode_env.scripted_model.policy import ChatBody
from opencode_simulation import SimulationTaskset
from opencode_simulation.alone import WorldAlone
from opencode_simulation.episode import EpisodeSpec
from opencode_simulation.hub import hub
from opencode_simulation.ledger import FINISH, Ledger
from opencode_simulation.samples.order_desk import OrderDesk
from opencode_simulation.task import SimulationTaskConfig
from opencode_simulation.taskset import SimulationTasksetConfig

from tests.simulation import ledgers
from tests.simulation.episodes import problems, serving
from tests.simulation.served import shared_worlds, text


async def played(spec: EpisodeSpec) -> Ledger:
    """What the scripted player of the shipped worlds brings about, without an agent's program."""
    policy = WorldsPolicy()
    async with WorldAlone(OrderDesk, spec) as world, Client(world.server()) as client:
        tools = [{"function": {"name": f"order_desk_{tool.name}"}} for tool in (await client.list_tools()).tools]
        prompt = OrderDesk.PROMPT.replace("{observation}", str(world.first_observation))
        messages: list[dict[str, Any]] = [{"role": "user", "content": prompt}]
        while calls := policy(
            ChatRequest(ChatBody.model_validate({"messages": messages, "tools": tools}), {}, 0)
        ).tool_calls:
            for call in calls:
                answer = await client.call_tool(call.name.removeprefix("order_desk_"), dict(call.arguments))  # type: ignore[arg-type]
                messages.append({"role": "tool", "content": text(answer)})
        await world.episode.finish()
        return world.ledger


@pytest.mark.parametrize("wish", ["colour", "cancel", "return", "late"])
async def test_whoever_does_what_the_rules_allow_is_rewarded(wish: str) -> None:
    for seed in range(10):
        ledger = await played(EpisodeSpec(seed=seed, config={"wish": wish}))
        assert ledger.summary.total_reward == 1.0, ledger
        assert ledger.steps[-1].info == {"wish": wish, "wrong_orders": []}


@pytest.mark.parametrize("wish", ["colour", "cancel", "return", "late"])
async def test_whoever_does_nothing_or_too_much_is_not(wish: str) -> None:
    spec = EpisodeSpec(seed=5, config={"wish": wish})
    async with WorldAlone(OrderDesk, spec) as idle:
        await idle.episode.finish()
    assert idle.ledger.summary.total_reward == float(wish == "late")
    async with WorldAlone(OrderDesk, spec) as busy:
        for number in list(busy.episode.world._orders):  # type: ignore[attr-defined]
            await busy.episode.call("cancel_order", {"number": number})
        await busy.episode.finish()
    assert busy.ledger.summary.total_reward == 0.0


def test_the_shipped_rows_have_users_who_say_stop() -> None:
    tasks = list(SimulationTaskset(SimulationTasksetConfig(task=SimulationTaskConfig(world="order-desk"))))
    assert [bool(task.data.user_simulation) for task in tasks] == [True] * 4 + [False] * 2


@pytest.mark.usefixtures("light_opencode")
async def test_a_conversation_that_its_user_ends_is_paid_for_the_final_state(tmp_path: Path) -> None:
    taskset = {"id": "opencode-simulation", "task": {"world": "order-desk"}}
    async with serving(tmp_path, WorldsPolicy(), taskset=taskset) as served:
        episode = await served.play(2)
    assert problems(episode) == []
    (trace,) = episode.traces
    assert (trace.reward, trace.stop_condition, trace.info["termination_reason"]) == (1.0, "user_stop", "user_stop")
    assert [entry.tool for entry in ledgers.played(trace).steps] == ["find_orders", "accept_return", FINISH]
    assert "###STOP###" not in str([request.body for request in served.requests])


@pytest.mark.usefixtures("programs")
async def test_a_shared_server_pays_for_the_final_state_and_not_for_a_rollout_that_is_given_up() -> None:
    async with shared_worlds("order-desk") as served:
        seat = await served.seat(seed=5, config={"wish": "late"})
        told: list[Ledger] = []
        given_up = await served.seat(told.append, seed=5, config={"wish": "late"})
        await hub().forget(given_up.rollout)
        ledger = await seat.finish()
    assert [(entry.tool, entry.reward) for entry in ledger.steps] == [(FINISH, 1.0)]
    assert (ledger.summary.steps, ledger.summary.total_reward) == (0, 1.0)
    assert [ledger.steps for ledger in told] == [[]] * len(told)
