"""What is known of each conversation goes on from a kept turn, those of sub-agents included."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.kept_turns.continued import CONVERSATIONS, Continued, rollout_state, unpacked
from opencode_env.kept_turns.keeping import Kind, RolloutTurns, TurnsConfig
from verifiers.v1.serve.delta import pack

from tests.history.asking import OPENCODE, user
from tests.history.test_sections import AT, CALL, RESULT, TASK, Agent, agent_of, called, head, said
from tests.rlm.role_server import SUB, RoleServer, Rollout, role_server
from tests.turns.test_format import made


def gateway_of(agent: Agent) -> Gateway:
    found = rollout_of(agent.trace).gateway
    assert found is not None
    return found


@asynccontextmanager
async def playing(server: RoleServer, state: Mapping[str, Any] | None = None) -> AsyncIterator[Agent]:
    """A rollout, which goes on from such a state."""

    def begun(rollout: Rollout) -> None:
        if state is not None:
            turns = RolloutTurns(Kind(made(), {}), TurnsConfig(), None, Continued(made(), unpacked(pack(state))))
            rollout_of(rollout.main).features.append(turns)
            turns.begun(rollout.main, rollout.side)

    async with server.rollout(harness=OPENCODE, begun=begun) as rollout:
        yield agent_of(rollout)
        rollout_of(rollout.main).program.forget()


async def asks_the_sub_agent_again(agent: Agent, options: Mapping[str, str]) -> Any:
    """The rest of a rollout whose sub-agent has left its window full; what is known of its conversations then."""
    agent.will_say(called(30, "d"), said("Much."), said("more", 40))
    await agent.asks(TASK, CALL, RESULT)
    assert (await agent.summarises(session="ses_2", **options)).status == 200
    await agent.asks(*head("Much."), session="ses_2", **options)
    known = [history.forks.known() for history in gateway_of(agent).histories.values()]
    return known, agent.history, agent.rollout.sub.info.get("history")


@pytest.mark.parametrize("options", [{}, SUB], ids=["on the main trace", "on a trace of its own"])
async def test_a_sub_agent_that_is_asked_again_behind_a_kept_turn_has_all_its_sections(
    options: Mapping[str, str],
) -> None:
    async with role_server(strict=True) as server:
        async with playing(server) as trunk:
            trunk.will_say(called(20), said("Done.", AT))
            await trunk.asks(TASK)
            await trunk.asks(user("A job."), session="ses_2", **options)
            state = rollout_state(gateway_of(trunk), "ses_1")
            known = await asks_the_sub_agent_again(trunk, options)
        async with playing(server, state) as branch:
            assert await asks_the_sub_agent_again(branch, options) == known
    record = known[2 if options else 1]
    assert [one["summary"] for one in record["sections"]] == [None, 0]


async def test_a_turn_of_a_version_that_kept_less_goes_on_behind_the_newest_answer() -> None:
    async with role_server(strict=True) as server:
        async with playing(server) as trunk:
            await trunk.fills(said("Much."))
            trunk.will_say(called(20, "d"))
            await trunk.asks(*head("Much."))
            forks = gateway_of(trunk).histories[True].forks
            state, known = rollout_state(gateway_of(trunk), "ses_1"), forks.known()
            for one in (state, state["sub"]):
                del one[CONVERSATIONS]
        async with playing(server, state) as branch:
            resumed = gateway_of(branch).histories[True].forks.known()
    assert resumed["sections"] == known["sections"]
    assert resumed["leaves"] == known["leaves"]
