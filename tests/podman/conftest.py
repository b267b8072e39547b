"""A started container, of one test or shared by a module's, and what was left behind checked after it."""

import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from rollout_sandbox.podman import PodmanConfig, PodmanRuntime, engine, provision_podman
from verifiers.v1.runtimes import ProgramResult

from tests.support.lent_containers import LentBackend
from tests.support.places import podman_box
from tests.support.user_home import podman_containers

PROBES = Path(__file__).parent / "probes"


@pytest.fixture
async def runtime(podman_image: str) -> AsyncIterator[PodmanRuntime]:
    async with podman_box(podman_image, LentBackend) as box:
        yield box


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What the tests of a module share lives in an event loop that they share."""
    for item in items:
        if "shared_runtime" in getattr(item, "fixturenames", ()) and item.path.parent == PROBES.parent:
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_runtime(podman_image: str) -> AsyncIterator[PodmanRuntime]:
    """One for all tests of a module, which find what those before have left."""
    async with provision_podman(PodmanConfig(image=podman_image)) as box:
        yield box
    assert_nothing_left(box)


def directories() -> set[Path]:
    """What containers of this process, living and dead, have on the host."""
    return set(Path(tempfile.gettempdir()).glob(f"{Path(engine._prefix()).name}*"))


def container_of(runtime: PodmanRuntime) -> str:
    """The name that podman knows its container by."""
    return runtime.backend.container.name


def assert_nothing_left(runtime: PodmanRuntime) -> None:
    """Neither the container nor its directory is there any more."""
    assert container_of(runtime) not in podman_containers()
    assert runtime.backend.container._directory not in directories()


async def sh(runtime: PodmanRuntime, script: str, **env: str) -> ProgramResult:
    """Run a shell script inside."""
    return await runtime.run(["sh", "-c", script], env)
