"""A started sandbox for each test, and what was left behind checked after it."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import pytest
from rollout_sandbox.confined import Bind, ConfinedRuntime, LocalSandboxConfig, provision_confined
from rollout_sandbox.confined.directory import ROOT
from verifiers.v1.runtimes import ProgramResult

PROBES = Path(__file__).parent / "probes"


def sandbox_directories() -> set[Path]:
    """Return the directories of sandboxes, living and dead."""
    return {path for path in ROOT.iterdir() if path.is_dir()} if ROOT.exists() else set()


async def sh(runtime: ConfinedRuntime, script: str, **env: str) -> ProgramResult:
    """Run a shell script in the sandbox."""
    return await runtime.run(["sh", "-c", script], env)


def program_of(name: str, *args: str) -> list[str]:
    """The argument vector of one of the programs in `probes/`, inside."""
    return ["python3", "-c", (PROBES / name).read_text(), *args]


async def probe(runtime: ConfinedRuntime, name: str, *args: str) -> ProgramResult:
    """Run one of the programs in `probes/` in the sandbox."""
    return await runtime.run(program_of(name, *args), {})


async def holds(runtime: ConfinedRuntime, number: int) -> bool:
    """Whether so many processes, or more, are in the sandbox."""
    # One listing, by the shell itself: `ls -d` looks at each name again, and leaves out those replaced meanwhile.
    return int((await sh(runtime, "set -- /proc/[0-9]*; echo $#")).stdout or 0) >= number


def confined(*binds: Bind, **options: object) -> AbstractAsyncContextManager[ConfinedRuntime]:
    """A sandbox with these options that shows this of the host."""
    return provision_confined(LocalSandboxConfig.model_validate(options), binds)


@pytest.fixture
async def runtime(sandboxes: None) -> AsyncIterator[ConfinedRuntime]:
    async with provision_confined(LocalSandboxConfig(), name="test") as started:
        yield started


@pytest.fixture
async def places(sandboxes: None) -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


async def started(places: AsyncExitStack, **options: object) -> ConfinedRuntime:
    return await places.enter_async_context(confined(**options))


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
