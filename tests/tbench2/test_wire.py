"""The served environment with real OpenEnv clients: ours, and the generic one that knows nothing of it."""

import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from opencode_env.openenv.tbench2 import Tbench2Action, Tbench2Env
from opencode_env.openenv.tbench2.models import ActionType
from openenv.core.generic_client import GenericEnvClient

from tests.support.user_home import UserHome, closed_port
from tests.task_folders.folders import oracle
from tests.tbench2.conftest import TASKS


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """The URL of a served environment, ended with SIGTERM; nothing of it is left."""
    home, port = UserHome(tmp_path), closed_port()
    variables = {"TB2_TASKS_DIR": str(TASKS), "TB2_OUTPUT_DIR": str(tmp_path / "logs"), "MAX_CONCURRENT_ENVS": "3"}
    with (tmp_path / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "opencode_env.openenv.tbench2", "--port", str(port)],
            env={**home.environment(), **variables},
            cwd=home.work,
            stdout=log,
            stderr=log,
        )
    url = f"http://127.0.0.1:{port}"
    try:
        until_up(url, process)
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert home.leftovers() == []


def until_up(url: str, process: "subprocess.Popen[bytes]") -> None:
    """Wait until the server answers."""
    while process.poll() is None:
        try:
            urllib.request.urlopen(f"{url}/health", timeout=5).read()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError("the server has ended")


def test_a_task_is_solved_over_the_wire(server: str) -> None:
    with Tbench2Env(server).sync() as client:
        begun = client.reset(task_id="fix-script", episode_id="e1")
        assert (begun.done, begun.observation.task_id) == (False, "fix-script")
        assert "slugify" in begun.observation.instruction
        seen = client.step(Tbench2Action(command="cat <<'E'\nit's $HOME\nE\nexit 4"))
        assert (seen.observation.output, seen.observation.info) == ("it's $HOME\n", {"exit_code": 4})
        assert (seen.reward, seen.observation.success) == (None, True)
        client.step(Tbench2Action(command=oracle(TASKS / "fix-script")))
        state = client.state()
        assert (state.task_id, state.step_count, state.episode_id) == ("fix-script", 2, "e1")
        assert state.terminal_ready
        with pytest.raises(RuntimeError, match="no session 'none'"):
            client.step(Tbench2Action(action_type=ActionType.VIEW, session_id="none"))
        scored = client.step(Tbench2Action(action_type=ActionType.EVALUATE))
        assert (scored.reward, scored.done, scored.observation.info["tests_passed"]) == (1.0, True, True)


def test_the_generic_client_and_a_client_that_vanishes(server: str) -> None:
    with GenericEnvClient(base_url=server, message_timeout_s=120).sync() as client:
        client.reset(task_id="count-lines")
        assert client.step({"action_type": "exec", "command": "ls"}).observation["output"] == "access.log\n"
    for _ in range(4):  # more than there are places: each that goes gives its own back
        with Tbench2Env(server).sync() as client:
            client.reset(task_id="count-lines")
            client.step(Tbench2Action(command="sleep 600", block=False))


def test_a_page_of_a_browser_is_not_served(server: str) -> None:
    request = urllib.request.Request(
        f"{server}/reset", data=b"{}", headers={"Origin": "http://evil.example", "Content-Type": "application/json"}
    )
    with pytest.raises(OSError, match="403"):
        urllib.request.urlopen(request, timeout=30)
