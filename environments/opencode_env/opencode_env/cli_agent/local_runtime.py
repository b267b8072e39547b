"""The runtime behind a seat's `subprocess` type: the confined local sandbox, or, by explicit choice, no confinement."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from opencode_rubrics.sandbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult, Runtime, SubprocessConfig, SubprocessRuntime
from verifiers.v1.runtimes.base import register

from opencode_env.cli_agent.sandbox import Bind, LocalSandboxConfig, provision_confined

_MARK = "OPENCODE_ENV_UNCONFINED"
_IN_WORKDIR = 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"'
_REWARDS = "/logs/verifier"
"""Where verify commands may write their reward."""

_added: Counter[Path] = Counter()
"""Live rollouts by directory of this machine that was not there before the first of them."""


class UnconfinedRuntime(SubprocessRuntime):
    """verifiers' plain subprocess runtime, accepted by the user: the agent sees and changes this machine's files.

    What the agent started is told by a mark in its environment, which a hostile agent can shed. A work directory that
    the user or the task named is kept with what the agent made in it; the default one and `/logs/verifier` go, unless
    they were there before.
    """

    def __init__(self, agent_workdir: str) -> None:
        super().__init__(SubprocessConfig())
        self._agent_workdir = agent_workdir
        self._adding: list[Path] = []

    async def start(self) -> None:
        """Remember what was here before."""
        await super().start()
        for wanted in (Path(DEFAULT_WORKDIR), Path(_REWARDS)):
            lineage = [*reversed(wanted.parents), wanted]
            if new := [path for path in lineage if path in _added or not os.path.lexists(path)]:
                self._adding.append(new[0])
        _added.update(self._adding)

    async def run_program(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run the agent in the work directory, with the mark in its environment."""
        there = ["sh", "-c", _IN_WORKDIR, "agent", self._agent_workdir]
        return await self.run([*there, *argv], {**env, _MARK: self.name})

    def cleanup(self) -> None:
        """Remove what the rollout added; idempotent."""
        super().cleanup()
        self._remove_added()

    async def teardown(self) -> None:
        """End background servers and remove what the rollout added."""
        await super().teardown()
        await asyncio.to_thread(self._remove_added)

    def _remove_added(self) -> None:
        while self._adding:
            path = self._adding.pop()
            _added[path] -= 1
            if _added[path] == 0:
                del _added[path]
                shutil.rmtree(path, ignore_errors=True)

    async def mark_agent_start(self) -> None:
        """Nothing to remember: the mark is in the environment."""

    async def end_agent_processes(self) -> None:
        """Kill every process that carries this runtime's mark.

        Raises:
            SandboxError: when some still live after ten rounds.
        """
        for _ in range(10):
            marked = await asyncio.to_thread(self._marked)
            if not marked:
                return
            for pid in marked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
        raise SandboxError(f"processes of the unconfined agent survive: {marked}")

    def _marked(self) -> list[int]:
        wanted = f"{_MARK}={self.name}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


@contextlib.asynccontextmanager
async def provision_local(
    options: LocalSandboxConfig, binds: Sequence[Bind], env: Mapping[str, str], workdir: str
) -> AsyncIterator[Runtime]:
    """A started local runtime, removed on exit.

    Args:
        options: whether and how it is confined.
        binds: host directories to show read-only; without effect when unconfined.
        env: variables of every process in it.
        workdir: absolute path of the work directory; private, unless unconfined.
    """
    if options.confine:
        async with provision_confined(options, binds, env=env, workdir=workdir) as box:
            yield box
        return
    runtime = UnconfinedRuntime(workdir)
    register(runtime)
    runtime.env = dict(env)
    try:
        await runtime.start()
        yield runtime
    finally:
        await runtime.stop()
