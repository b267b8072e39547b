"""A started sandbox of each kind for the tests that need one, and traces to score."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
import verifiers.v1 as vf
from opencode_rubrics import AnyTrace, RemoteHybridMathConfig, RemoteHybridMathRubric
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined

from tests.rubrics.math_places import PlaceOf, place_named
from tests.support.places import podman_box, prime_box
from tests.support.prime_api import NO_ROOT, PrimeApi


class CheckedData(vf.TaskData):
    """Task data of a foreign taskset that fits our rubrics."""

    answer: str | None = None
    verify: list[str] = []
    verify_timeout: float | None = None


def trace_of(data: vf.TaskData, reply: str | None = None) -> AnyTrace:
    """A trace as a rollout of the task leaves it, with `reply` as the agent's last word."""
    task: vf.TraceTask[Any] = vf.TraceTask(type="Task", data=data, key="k", hash="h")
    trace: vf.Trace[Any, Any, Any] = vf.Trace(task=task, agent=vf.AgentInfo(config=vf.AgentConfig()))
    trace.root_reply = reply
    return trace


SHARED = {"shared_box", "shared_root_box", "shared_confined", "math_rubric", "pools"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the tests of a module share lives in an event loop that they share."""
    for item in items:
        if SHARED.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@asynccontextmanager
async def _started(kind: str, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    if kind == "container":
        async with podman_box(request.getfixturevalue("podman_image")) as runtime:
            yield runtime
    elif kind == "prime":
        server: PrimeApi = request.getfixturevalue("prime_server")
        with pytest.MonkeyPatch.context() as patch:
            for name, value in server.environment.items():
                patch.setenv(name, value)
            async with prime_box("bare") as runtime:
                yield runtime
        assert server.living == []
    else:
        async with provision_confined(LocalSandboxConfig()) as runtime:
            yield runtime


@pytest.fixture
async def confined(sandboxes: None, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    async with _started("confined", request) as runtime:
        yield runtime


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_confined(sandboxes: None, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    """A confined sandbox for all tests of a module, which find what those before have left."""
    async with _started("confined", request) as runtime:
        yield runtime


@pytest.fixture
async def container(podman_image: str, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    async with _started("container", request) as runtime:
        yield runtime


_CONTAINER = pytest.param("container", marks=pytest.mark.podman)
_WITH_ROOT = ["confined", _CONTAINER, pytest.param("prime", marks=pytest.mark.skip(reason=NO_ROOT))]


@pytest.fixture(params=_WITH_ROOT)
async def root_box(sandboxes: None, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    """A sandbox of each kind in which agent code can be kept apart from what checks it."""
    async with _started(request.param, request) as runtime:
        yield runtime


@pytest_asyncio.fixture(params=_WITH_ROOT, scope="module", loop_scope="module")
async def shared_root_box(sandboxes: None, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    """One of these for all tests of a module, which find what those before have left."""
    async with _started(request.param, request) as runtime:
        yield runtime


@pytest_asyncio.fixture(params=["confined", _CONTAINER, "prime"], scope="module", loop_scope="module")
async def shared_box(sandboxes: None, request: pytest.FixtureRequest) -> AsyncIterator[vf.Runtime]:
    """A sandbox of each kind for all tests of a module, which find what those before have left."""
    async with _started(request.param, request) as runtime:
        yield runtime


@pytest.fixture
def box(shared_box: vf.Runtime) -> vf.Runtime:
    """See there."""
    return shared_box


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def math_rubric(sandboxes: None) -> AsyncIterator[RemoteHybridMathRubric]:
    """One for all tests of a module, with its worker."""
    rubric = RemoteHybridMathRubric(RemoteHybridMathConfig(max_workers=1))
    yield rubric
    await rubric.teardown()


@pytest.fixture
def place_of(request: pytest.FixtureRequest, math_rubric: RemoteHybridMathRubric) -> PlaceOf:
    """See there."""
    return partial(place_named, request=request, rubric=math_rubric)
