"""An evaluation that is killed leaves neither programs nor containers of its tool backends."""

import os
import signal
from pathlib import Path

import pytest
from opencode_env.scripted_model import Reply, ScriptedModel, ScriptPolicy

from tests.simulation.backends.surroundings import SERVER, in_container, program, write_file
from tests.simulation.episodes import row
from tests.support.replies import call
from tests.support.rows import write_rows
from tests.support.user_home import UserHome, podman_containers
from tests.support.waiting import until

pytestmark = [pytest.mark.podman, pytest.mark.usefixtures("light_opencode")]


@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGINT])
async def test_an_evaluation_that_is_ended_leaves_no_backend(
    tmp_path: Path, podman_image: str, ending: signal.Signals
) -> None:
    (tmp_path / "template").mkdir()
    home = UserHome(tmp_path)
    before = set(podman_containers())
    container = in_container(podman_image, "stdio", backend_name_ref="boxed")
    file = write_file(
        tmp_path / "backends.yaml", program(), program("all", instance_scoping="shared_global"), container
    )
    dataset = write_rows(tmp_path / "rows.jsonl", [row("one")])

    def servers() -> list[str]:
        return [command for command in home.processes().values() if f"{SERVER.name} stdio" in command]

    async with ScriptedModel(ScriptPolicy.of(call("notes_hang"), Reply(text="done"))) as model:
        arguments = ["opencode-env", "--env.taskset.dataset", str(dataset), "--env.backends.file", str(file)]
        environment = {"CONTAINERS_CONF": os.environ["CONTAINERS_CONF"]}
        async with home.running("killed", model.base_url, *arguments, env=environment) as evaluation:
            await until(lambda: len(model.requests) == 1 and len(set(podman_containers()) - before) == 1)
            assert servers()
            evaluation.process.send_signal(ending)
            await evaluation.process.ended()
            await until(lambda: not servers() and set(podman_containers()) <= before)
    await until(lambda: not list(home.temporary.glob("vf-podman-*")))
