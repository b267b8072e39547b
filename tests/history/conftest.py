"""A rollout of OpenCode whose model takes what a strict provider takes, unless `server` is parametrised with False."""

from collections.abc import AsyncIterator

import pytest

from tests.history.asking import OPENCODE
from tests.rlm.role_server import RoleServer, Rollout, role_server


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RoleServer]:
    async with role_server(strict=getattr(request, "param", True)) as server:
        yield server


@pytest.fixture
async def rollout(server: RoleServer) -> AsyncIterator[Rollout]:
    async with server.rollout(harness=OPENCODE) as rollout:
        yield rollout
