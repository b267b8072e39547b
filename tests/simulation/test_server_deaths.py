"""Worlds whose servers die: each death is a typed error soon, never a reward, and nothing is left."""

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.simulation import ledgers
from tests.support.replies import call
from tests.support.rows import script, write_rows
from tests.support.user_home import FinishedEvaluation, UserHome

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("light_opencode")]

ROWS = {"dies": {"reset": "dies"}, "raises": {"reset": "raises"}, "killed": {}, "slow": {}, "well": {}}


async def played(home: UserHome, server: str, *names: str) -> tuple[FinishedEvaluation, ScriptedModel]:
    """These rows, and the model that was asked."""
    rows = [{"id": name, "config": ROWS[name], "prompt": f"row {name}: {{observation}}"} for name in names]
    policy = ScriptPolicy(
        script("killed", call("bare_act", how="well"), call("bare_act", how="dies"), Reply(text="done")),
        script("slow", call("bare_act", how="well"), call("bare_act", how="slow"), Reply(text="done")),
        script("well", call("bare_act", how="well"), Reply(text="done")),
    )
    words = ["opencode-simulation", "--env.taskset.dataset", str(write_rows(home.root / "rows.jsonl", rows))]
    words += ["--env.taskset.task.world", "odd_worlds:Bare", "--env.taskset.task.server", server, "-c", "2"]
    words += ["--env.agent.harness.tool-timeout", "10"]
    async with ScriptedModel(policy) as model:
        finished = await home.run(server, model.base_url, *words)
    assert home.leftovers() == []
    return finished, model


@pytest.mark.parametrize(("server", "names"), [("rollout", [*ROWS]), ("shared", ["killed"])])
async def test_a_world_whose_server_dies_is_an_error_and_no_reward(
    server: str, names: list[str], shared_home: UserHome
) -> None:
    finished, model = await played(shared_home, server, *names)
    killed = finished.trace("killed")
    (error,) = killed.errors
    assert (error.type, "the world's server died" in error.message) == ("BrokenWorldError", True)
    assert (killed.ok, killed.rewards) == (False, {})
    assert [entry.reward for entry in ledgers.played(killed).steps] == [1.0]
    if "well" not in names:
        return
    for name in ("well", "slow"):
        assert (finished.trace(name).ok, finished.trace(name).reward) == (True, 1.0), finished.trace(name).errors
    for name, said in (("dies", "the world's server died: no display found"), ("raises", "OSError: no such lake")):
        trace = finished.trace(name)
        assert [(error.type, said in error.message) for error in trace.errors] == [("WorldError", True)], trace.errors
        assert (trace.rewards, trace.num_turns) == ({}, 0)
    assert not any(f"row {name}:" in str(request.body) for request in model.requests for name in ("dies", "raises"))
