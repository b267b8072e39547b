"""The servers as others start them: by what `openenv.yaml` says, with OpenEnv's own tools, and in a container."""

import json
import os
import re
import subprocess
import sys
import tomllib
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from opencode_openenv import OpenCodeEnvClient
from opencode_openenv.spec import RolloutSpec
from openenv.cli.__main__ import app
from openenv.cli._validation import validate_running_environment

from tests.support.forked import Forked
from tests.support.openenv_server import openenv_server
from tests.support.user_home import UserHome, closed_port
from tests.support.waiting import wait_until
from tests.test_structure import ROOT

pytestmark = pytest.mark.usefixtures("sandboxes")

DIRECTORIES = sorted((ROOT / "deploy" / "openenv").iterdir())
BOTH = pytest.mark.parametrize("directory", DIRECTORIES, ids=lambda path: str(path.name))


def manifest(directory: Path) -> dict[str, str]:
    """What a directory's `openenv.yaml` says."""
    return dict(re.findall(r"^(\w+): (.+)$", (directory / "openenv.yaml").read_text(), re.MULTILINE))


@contextmanager
def served(home: UserHome, directory: Path, token: str | None) -> Iterator[tuple[Forked, str, Path]]:
    """uvicorn with the manifest's application: the process, its URL, its log."""
    port, log = closed_port(), home.root / "uvicorn.log"
    argv = [sys.executable, "-m", "uvicorn", manifest(directory)["app"], "--host", "127.0.0.1", "--port", str(port)]
    variables = home.environment({} if token is None else {"OPENCODE_OPENENV_TOKEN": token})
    with log.open("wb") as said:
        process = Forked(argv, home.work, variables, said, said)
    try:
        wait_until(lambda: b"running on" in log.read_bytes() or process.poll() is not None)
        yield process, f"http://127.0.0.1:{port}", log
    finally:
        process.terminate()
        process.wait(60)


@BOTH
def test_the_manifests_application_serves_who_has_the_token_and_ends_cleanly(home: UserHome, directory: Path) -> None:
    with served(home, directory, "a-long-token") as (process, url, log):
        assert process.poll() is None, log.read_text()
        request = urllib.request.Request(f"{url}/state", headers={"Authorization": "Bearer a-long-token"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            assert json.load(answer)["step_count"] == 0
        with pytest.raises(OSError, match="401"):
            urllib.request.urlopen(f"{url}/state", timeout=60)
    assert home.leftovers() == []


@BOTH
def test_the_manifests_application_does_not_start_without_a_token(home: UserHome, directory: Path) -> None:
    with served(home, directory, None) as (process, _, log):
        assert process.poll() is not None
        assert "OPENCODE_OPENENV_TOKEN" in log.read_text()


def openenv(capfd: pytest.CaptureFixture[str], *arguments: str) -> str:
    """What a command of OpenEnv prints, in this process, which has imported it."""
    with pytest.raises(SystemExit) as ended:
        app([*arguments])
    said = capfd.readouterr()
    assert ended.value.code == 0, said.out + said.err
    return said.out


@BOTH
def test_openenvs_validation_of_the_directory_with_the_manifest_passes(
    directory: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of the checkout as it is, where no other directory holds a manifest."""
    assert "[NO]" not in openenv(capfd, "validate", "--verbose", str(directory))
    found = [path for depth in ("*", "*/*", "*/*/*") for path in ROOT.glob(f"{depth}/openenv.yaml")]
    assert sorted(path.parent for path in found) == DIRECTORIES


@BOTH
def test_manifest_and_dockerfile_name_what_there_is(directory: Path) -> None:
    scripts = tomllib.loads((ROOT / "environments/opencode_openenv/pyproject.toml").read_text())["project"]["scripts"]
    dockerfile, said = (directory / "server" / "Dockerfile").read_text(), manifest(directory)
    assert (said["spec_version"], said["name"], said["port"]) == ("1", directory.name, "8000")
    assert "EXPOSE 8000" in dockerfile
    command = re.search(r"exec (\S+) --host", dockerfile)
    assert command is not None
    assert command[1] in scripts
    # The same entry point where OpenEnv's tools look for it.
    module = scripts[command[1]].partition(":")[0]
    assert f"from {module} import main" in (directory / "server" / "app.py").read_text()


DOCKER = """#!/bin/sh
# In the place of Docker: checks that the context, which is the last argument, holds what the Dockerfile copies.
for context; do :; done
cd "$context" || exit 1
grep '^COPY ' server/Dockerfile | while read -r _ source _; do
    [ -e "$source" ] || { echo "there is no $source"; exit 1; }
done
ls wheels
"""


def test_what_openenv_build_hands_to_docker_holds_all_that_the_image_installs(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    subprocess.run([ROOT / "scripts" / "openenv_directories.sh"], check=True)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    for directory in DIRECTORIES:
        said = openenv(capfd, "build", str(directory))
        for package in ("opencode_env", "opencode_openenv", "opencode_rlm", "opencode_rubrics"):
            assert re.search(rf"^{package}-\S+\.whl$", said, re.MULTILINE), said
        requirements = (directory / "requirements.txt").read_text()
        locked = {entry["name"]: entry["version"] for entry in tomllib.loads((ROOT / "uv.lock").read_text())["package"]}
        for name in ("openenv", "fastmcp", "verifiers", "uvicorn"):
            assert f"\n{name}=={locked[name]} " in requirements


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
    client = await OpenCodeEnvClient.from_docker_image("an-image", provider)
    async with client:
        (tool,) = await client.list_tools()
        assert set(tool.input_schema["properties"]) == set(RolloutSpec.model_fields)
    assert provider.stopped == 1


def test_openenvs_own_validation_of_a_running_environment_finds_nothing(home: UserHome) -> None:
    with openenv_server(home) as server:
        report = validate_running_environment(server.url, 60)
    assert report["passed"], report["criteria"]
