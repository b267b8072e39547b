"""A started sandbox for each test, and what was left behind checked after it."""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from agent_sandbox.confined import ConfinedRuntime, LocalSandboxConfig, provision_confined
from agent_sandbox.confined.directory import ROOT
from verifiers.v1.runtimes import ProgramResult

PROBES = Path(__file__).parent / "probes"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if shutil.which("bwrap") is None:
        for item in items:
            if item.path.parent == Path(__file__).parent:
                item.add_marker(pytest.mark.skip(reason="bubblewrap is not installed: apt-get install bubblewrap"))


def sandbox_directories() -> set[Path]:
    """Return the directories of sandboxes, living and dead."""
    return {path for path in ROOT.iterdir() if path.is_dir()} if ROOT.exists() else set()


async def sh(runtime: ConfinedRuntime, script: str, **env: str) -> ProgramResult:
    """Run a shell script in the sandbox."""
    return await runtime.run(["sh", "-c", script], env)


async def probe(runtime: ConfinedRuntime, name: str, *args: str) -> ProgramResult:
    """Run one of the programs in `probes/` in the sandbox."""
    path = f"/tmp/probes/{name}"
    await runtime.write(path, (PROBES / name).read_bytes())
    return await runtime.run(["python3", path, *args], {})


@pytest.fixture
async def runtime(sandboxes: None) -> AsyncIterator[ConfinedRuntime]:
    async with provision_confined(LocalSandboxConfig(), name="test") as started:
        assert isinstance(started, ConfinedRuntime)
        yield started


@pytest.fixture
async def places(sandboxes: None) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def started(places: AsyncExitStack, **options: object) -> ConfinedRuntime:
    box = await places.enter_async_context(provision_confined(LocalSandboxConfig.model_validate(options)))
    assert isinstance(box, ConfinedRuntime)
    return box


@pytest.fixture(autouse=True)
async def _nothing_left_behind() -> AsyncIterator[None]:
    fds = set(os.listdir("/proc/self/fd"))
    yield
    assert {task for task in asyncio.all_tasks() if task is not asyncio.current_task()} == set()
    # The thread pool and the resolver may keep some, the first sandbox a block of ids and an idle namespace; and one is
    # the listing itself. A leak per sandbox would be more.
    assert len(set(os.listdir("/proc/self/fd")) - fds) <= 3


@pytest.fixture
def host_secret(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "secret"
    path.write_text("host secret")
    path.chmod(0o644)
    yield path
    assert path.read_text() == "host secret"
