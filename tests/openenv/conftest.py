"""Fixtures of the OpenEnv tests: a server, and an open engine."""

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from opencode_openenv.rollout_engine import RolloutEngine
from opencode_openenv.settings import ServerConfig

from tests.support.openenv_server import RunningServer, openenv_server
from tests.support.user_home import UserHome


@pytest.fixture(scope="module")
def server(sandboxes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server of default settings, for a whole test module."""
    with openenv_server(UserHome(tmp_path_factory.mktemp("server"))) as running:
        yield running


@pytest_asyncio.fixture
async def engine(sandboxes: None) -> AsyncIterator[RolloutEngine]:
    """An open engine of default settings."""
    async with RolloutEngine(ServerConfig().environment()).open() as opened:
        yield opened
