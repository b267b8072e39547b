"""The shipped worlds with an agent in podman containers: the world stays on the host, and nothing of it is left."""

import asyncio

import pytest
from opencode_env.scripted_model import ScriptedModel, WorldsPolicy
from opencode_simulation.ledger import ledger_of

from tests.env.test_podman import podman
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.podman, pytest.mark.slow]


@pytest.mark.parametrize("server", ["rollout", "shared"])
async def test_work_is_done_and_rewarded_with_the_agent_in_a_container(
    server: str, podman_image: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    home = UserHome(tmp_path_factory.mktemp("worlds"))
    words = ["opencode-simulation", "--env.taskset.task.world", "issue-tracker", "--env.taskset.task.server", server]
    words += ["--select.limit", "1", *podman(podman_image)]
    async with ScriptedModel(WorldsPolicy()) as model:
        finished = await asyncio.wait_for(home.run("tracker", model.base_url, *words), 600)
    assert finished.exit_code == 0, finished.log
    trace = finished.trace("triage-1")
    assert (trace.ok, trace.reward) == (True, 1.0), (trace.errors, finished.log)
    found = ledger_of(trace.info)
    assert found is not None
    assert found.steps[-1].tool == "finish"
    assert home.leftovers() == []
