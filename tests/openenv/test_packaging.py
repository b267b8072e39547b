"""The server as others start it: by the name in `openenv.yaml`, and in a container."""

import json
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opencode_env.openenv import OpenCodeEnv
from opencode_env.openenv.spec import RolloutSpec
from openenv.cli._validation import validate_running_environment

from tests.support.openenv_server import openenv_server
from tests.support.user_home import UserHome, closed_port
from tests.support.waiting import wait_until
from tests.test_structure import ROOT

PACKAGE = ROOT / "environments" / "opencode_env"
MANIFEST = dict(re.findall(r"^(\w+): (.+)$", (PACKAGE / "openenv.yaml").read_text(), re.MULTILINE))


@contextmanager
def served(home: UserHome, token: str | None) -> Iterator[tuple["subprocess.Popen[bytes]", str, Path]]:
    """uvicorn with the manifest's application: the process, its URL, its log."""
    port, log = closed_port(), home.root / "uvicorn.log"
    argv = [sys.executable, "-m", "uvicorn", MANIFEST["app"], "--host", "127.0.0.1", "--port", str(port)]
    variables = home.environment({} if token is None else {"OPENCODE_OPENENV_TOKEN": token})
    with log.open("wb") as said:
        process = subprocess.Popen(argv, cwd=home.work, env=variables, stdout=said, stderr=said)
    try:
        wait_until(lambda: b"running on" in log.read_bytes() or process.poll() is not None)
        yield process, f"http://127.0.0.1:{port}", log
    finally:
        process.terminate()
        process.wait(60)


def test_the_manifests_application_serves_who_has_the_token_and_ends_cleanly(home: UserHome) -> None:
    with served(home, "a-long-token") as (process, url, log):
        assert process.poll() is None, log.read_text()
        request = urllib.request.Request(f"{url}/state", headers={"Authorization": "Bearer a-long-token"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["step_count"] == 0
        with pytest.raises(OSError, match="401"):
            urllib.request.urlopen(f"{url}/state", timeout=60)
    assert home.leftovers() == []


def test_the_manifests_application_does_not_start_without_a_token(home: UserHome) -> None:
    with served(home, None) as (process, _, log):
        assert process.poll() is not None
        assert "OPENCODE_OPENENV_TOKEN" in log.read_text()


def test_manifest_and_dockerfile_name_what_there_is() -> None:
    scripts = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]["scripts"]
    dockerfile = (PACKAGE / "Dockerfile").read_text()
    assert (MANIFEST["spec_version"], MANIFEST["name"], MANIFEST["port"]) == ("1", "opencode_env", "8000")
    assert "opencode-openenv" in scripts
    assert "EXPOSE 8000" in dockerfile
    for line in dockerfile.splitlines():
        if line.startswith("COPY "):
            assert all((ROOT / source).exists() for source in line.split()[1:-1]), line


class LocalProvider:
    """Starts the server itself in the place of a container."""

    def __init__(self, home: UserHome) -> None:
        self._home = home
        self.stopped = 0

    def start_container(self, image: str, env_vars: dict[str, str]) -> str:
        """Start it with the variables."""
        self._running = openenv_server(self._home, env=env_vars)
        return self._running.__enter__().url

    def wait_for_ready(self, base_url: str) -> None:
        """It is."""

    def stop_container(self) -> None:
        """End it."""
        self.stopped += 1
        self._running.__exit__(None, None, None)

    def close(self) -> None:
        """Nothing is held beside it."""


async def test_a_client_from_an_image_has_a_token_of_its_own(home: UserHome) -> None:
    provider = LocalProvider(home)
    client = await OpenCodeEnv.from_docker_image("an-image", provider)
    async with client:
        (tool,) = await client.list_tools()
        assert set(tool.input_schema["properties"]) == set(RolloutSpec.model_fields)
    assert provider.stopped == 1


def test_openenvs_own_validation_of_a_running_environment_finds_nothing(home: UserHome) -> None:
    with openenv_server(home) as server:
        report = validate_running_environment(server.url, 60)
    assert report["passed"], report["criteria"]
