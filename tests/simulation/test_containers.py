"""The shipped worlds with an agent in podman containers: the world stays on the host, and nothing of it is left."""

import pytest
from opencode_env.scripted_model import ScriptedModel, WorldsPolicy

from tests.env.test_podman import podman
from tests.simulation import ledgers
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.podman, pytest.mark.slow]


@pytest.mark.parametrize("server", ["rollout", "shared"])
async def test_work_is_done_and_rewarded_with_the_agent_in_a_container(
    server: str, podman_image: str, shared_home: UserHome
) -> None:
    words = ["opencode-simulation", "--env.taskset.task.world", "issue-tracker", "--env.taskset.task.server", server]
    words += ["--select.limit", "1", *podman(podman_image)]
    async with ScriptedModel(WorldsPolicy()) as model:
        finished = await shared_home.run(server, model.base_url, *words)
    assert finished.exit_code == 0, finished.log
    trace = finished.trace("triage-1")
    assert (trace.ok, trace.reward) == (True, 1.0), (trace.errors, finished.log)
    assert ledgers.played(trace).steps[-1].tool == "finish"
    assert shared_home.leftovers() == []
