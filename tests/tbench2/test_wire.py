"""The served environment with real OpenEnv clients: ours, and the generic one that knows nothing of it."""

import os
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opencode_openenv.tbench2 import Tbench2Action, Tbench2Env
from opencode_openenv.tbench2.app import app
from opencode_openenv.tbench2.models import ActionType
from opencode_openenv.tbench2.settings import Tbench2ServerConfig
from openenv.core.generic_client import GenericEnvClient

from tests.support.forked import Forked
from tests.support.openenv_server import spoken_by
from tests.support.user_home import UserHome, closed_port, is_closed
from tests.support.waiting import wait_until
from tests.task_folders.folders import oracle
from tests.tbench2.conftest import TASKS

pytestmark = pytest.mark.usefixtures("sandboxes")


@contextmanager
def serving(root: Path, variables: dict[str, str] | None = None) -> Iterator[str]:
    """The URL of a served environment, ended with SIGTERM; nothing of it is left."""
    home, port = UserHome(root), closed_port()
    own = {"TB2_TASKS_DIR": str(TASKS), "TB2_OUTPUT_DIR": str(root / "logs"), "MAX_CONCURRENT_ENVS": "3"}
    with (root / "server.log").open("wb") as log:
        argv = [sys.executable, "-m", "opencode_openenv.tbench2", "--port", str(port)]
        process = Forked(argv, home.work, {**home.environment(), **own, **(variables or {})}, log, log)
    try:
        wait_until(lambda: not is_closed(port) or process.poll() is not None)
        assert process.poll() is None, (root / "server.log").read_text()
        url = f"http://127.0.0.1:{port}"
        urllib.request.urlopen(f"{url}/health", timeout=60).close()  # whoever waits for a server has no token
        yield url
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert home.leftovers() == []


@pytest.fixture(scope="module")
def server(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of the module that asks for no token."""
    with serving(tmp_path_factory.mktemp("server")) as url:
        yield url


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


def test_wrong_use_over_http_is_told_to_the_caller(server: str) -> None:
    for body, why in ((b"{}", "reset needs a task_id"), (b'{"task_id": "none-such"}', "there is no task")):
        asked = urllib.request.Request(f"{server}/reset", body, {"Content-Type": "application/json"})
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(asked, timeout=60)
        assert refused.value.code == 422
        assert why in refused.value.read().decode()


def test_the_generic_client_and_clients_that_say_goodbye(tmp_path: Path) -> None:
    with serving(tmp_path) as url:
        with GenericEnvClient(base_url=url, message_timeout_s=120).sync() as client:
            client.reset(task_id="count-lines")
            assert client.step({"action_type": "exec", "command": "ls"}).observation["output"] == "access.log\n"
        for _ in range(6):  # more than there are places: each that goes gives its own back, with its sandbox
            with Tbench2Env(url).sync() as client:
                client.reset(task_id="count-lines")
                client.step(Tbench2Action(command="sleep 600", block=False))
        wait_until(lambda: sandboxes(tmp_path) == [])
        log = (tmp_path / "server.log").read_text()
    assert log.count("task 'count-lines' ended without a score: its caller is gone") == 7
    assert "Traceback" not in log


def sandboxes(root: Path) -> list[str]:
    """What there is of sandboxes of the server below `root`."""
    return [name for name in UserHome(root).leftovers() if "tbench2" not in name]


def test_a_server_that_was_killed_leaves_nothing_that_runs_and_the_next_one_nothing_at_all(tmp_path: Path) -> None:
    with serving(tmp_path) as url, Tbench2Env(url).sync() as client:
        client.reset(task_id="count-lines")
        client.step(Tbench2Action(command="sleep 600", block=False))
        (server,) = [name for name in UserHome(tmp_path).leftovers() if "tbench2" in name]
        os.kill(int(server.split()[1].rstrip(":")), signal.SIGKILL)
        wait_until(lambda: not any(name.startswith("process") for name in sandboxes(tmp_path)))
        with serving(tmp_path) as again, Tbench2Env(again).sync() as other:
            other.reset(task_id="count-lines")


def test_a_page_of_a_browser_is_not_served(server: str) -> None:
    request = urllib.request.Request(
        f"{server}/reset", data=b"{}", headers={"Origin": "http://evil.example", "Content-Type": "application/json"}
    )
    with pytest.raises(OSError, match="403"):
        urllib.request.urlopen(request, timeout=30)


@pytest.mark.parametrize("version", ["0.4.1", "0.10.0"])
def test_openenvs_own_generic_client_solves_a_task(server: str, version: str, request: pytest.FixtureRequest) -> None:
    python = sys.executable if version == "0.4.1" else request.getfixturevalue("newest_python")
    program = Path(__file__).parent / "clients" / "generic.py"
    said = spoken_by(python, program, server, "fix-script", oracle(TASKS / "fix-script"))
    assert "slugify" in said["instruction"]
    assert said["output"].endswith("solved\n")
    assert (said["state"]["task_id"], said["state"]["episode_id"]) == ("fix-script", "episode-7")
    assert (said["reward"], said["done"], said["info"]["tests_passed"]) == (1.0, True, True)


async def test_where_an_agent_may_reach_the_server_it_asks_for_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TB2_MODE", "podman")
    monkeypatch.delenv("OPENCODE_OPENENV_TOKEN", raising=False)
    with pytest.raises(ValueError, match="OPENCODE_OPENENV_TOKEN"):
        await app.serve(Tbench2ServerConfig())
    monkeypatch.setenv("TB2_MODE", "local")
    monkeypatch.setenv("MAX_CONCURRENT_ENVS", "many")
    with pytest.raises(ValueError, match="MAX_CONCURRENT_ENVS"):
        await app.serve(Tbench2ServerConfig())


def test_only_who_has_the_token_is_served(tmp_path: Path) -> None:
    with serving(tmp_path, {"OPENCODE_OPENENV_TOKEN": "a-long-token"}) as url:
        for wrong in (None, "another-token"):
            with pytest.raises(ConnectionError), Tbench2Env(url, token=wrong).sync() as client:
                client.reset(task_id="count-lines")
        with Tbench2Env(url, token="a-long-token").sync() as client:
            assert client.reset(task_id="count-lines").observation.task_id == "count-lines"
