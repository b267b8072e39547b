"""A rollout of OpenCode whose model takes what a strict provider takes, unless `server` is parametrised with False;
with `rollout` parametrised with True, another seat's model makes its summaries; with a harness, it is of that."""

from collections.abc import AsyncIterator

import pytest

from tests.history.asking import OPENCODE
from tests.rlm.role_server import RoleServer, Rollout, role_server


@pytest.fixture
async def server(request: pytest.FixtureRequest) -> AsyncIterator[RoleServer]:
    async with role_server(strict=getattr(request, "param", True)) as server:
        yield server


@pytest.fixture
async def rollout(server: RoleServer, request: pytest.FixtureRequest) -> AsyncIterator[Rollout]:
    asked = getattr(request, "param", False)
    options = {"harness": OPENCODE, "summary": asked} if isinstance(asked, bool) else {"harness": asked}
    async with server.rollout(**options) as rollout:
        yield rollout
