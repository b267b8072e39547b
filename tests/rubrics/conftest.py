"""A started sandbox of each kind for the tests that need one, and traces to score."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import verifiers.v1 as vf
from agent_sandbox.confined import LocalSandboxConfig, provision_confined
from opencode_rubrics import AnyTrace

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


@pytest.fixture
async def confined(sandboxes: None) -> AsyncIterator[vf.Runtime]:
    async with provision_confined(LocalSandboxConfig(), (), name=None, env={}) as runtime:
        yield runtime


@pytest.fixture
async def container(podman_image: str) -> AsyncIterator[vf.Runtime]:
    async with podman_box(podman_image) as runtime:
        yield runtime


@pytest.fixture
async def prime(prime_api: PrimeApi) -> AsyncIterator[vf.Runtime]:
    async with prime_box("bare") as runtime:
        yield runtime


def _named(request: pytest.FixtureRequest) -> vf.Runtime:
    runtime: vf.Runtime = request.getfixturevalue(request.param)
    return runtime


_CONTAINER = pytest.param("container", marks=pytest.mark.podman)


@pytest.fixture(params=["confined", _CONTAINER, pytest.param("prime", marks=pytest.mark.skip(reason=NO_ROOT))])
def root_box(sandboxes: None, request: pytest.FixtureRequest) -> vf.Runtime:
    """A sandbox of each kind in which agent code can be kept apart from what checks it."""
    return _named(request)


@pytest.fixture(params=["confined", _CONTAINER, "prime"])
def box(sandboxes: None, request: pytest.FixtureRequest) -> vf.Runtime:
    """A sandbox of each kind."""
    return _named(request)
