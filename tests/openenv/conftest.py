"""Fixtures of the OpenEnv tests: a server, an open engine, and other versions of OpenEnv in environments of their
own."""

import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
from opencode_env.openenv.engine import Engine
from opencode_env.openenv.settings import ServerConfig

from tests.support.openenv_server import RunningServer, openenv_server
from tests.support.user_home import UserHome

NEWEST = "0.10.0"


@pytest.fixture
def home(tmp_path: Path) -> UserHome:
    """A fresh home."""
    return UserHome(tmp_path)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of default settings, for a whole test module."""
    with openenv_server(UserHome(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest_asyncio.fixture
async def engine() -> AsyncIterator[Engine]:
    """An open engine of default settings."""
    async with Engine(ServerConfig().environment()).open() as opened:
        yield opened


@pytest.fixture(scope="session")
def newest_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the newest OpenEnv that was tried, which does not fit beside verifiers."""
    uv = shutil.which("uv")
    if uv is None:
        if os.environ.get("CI"):
            pytest.fail("uv is not on PATH: the newest OpenEnv cannot be installed")
        pytest.skip("uv is not on PATH")
    place = tmp_path_factory.mktemp("newest") / "venv"
    subprocess.run([uv, "venv", "-q", "-p", "3.11", str(place)], check=True, timeout=120)
    python = place / "bin" / "python"
    subprocess.run([uv, "pip", "install", "-q", "--python", str(python), f"openenv=={NEWEST}"], check=True, timeout=600)
    return python
