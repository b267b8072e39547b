"""Ends what the agent started, by identity, before anything is scored.

Invariant: after `end()` returned, no process lives in the sandbox that started after `mark()`, other than children of
marked tool servers. The confined local sandbox does it natively (its process 1 is ours); elsewhere two shell scripts
do, which an agent that is root in its container could have undermined by replacing `sh`.
"""

import os
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult, Runtime

from opencode_env.harness.state import program


@runtime_checkable
class EndsProcesses(Protocol):
    """A runtime that can tell an agent's processes from its own and end them."""

    async def mark_agent_start(self) -> None: ...

    async def end_agent_processes(self) -> None: ...


@dataclass
class ProcessFence:
    """The line between what ran before the agent and what the agent started."""

    runtime: Runtime
    _mark: str | None = field(default=None, repr=False)

    async def mark(self) -> None:
        """Remember every process that is running now.

        Raises:
            SandboxError: when the sandbox cannot be asked.
        """
        if isinstance(self.runtime, EndsProcesses):
            await self.runtime.mark_agent_start()
            self._mark = ""
            return
        await self._check_namespace()
        result = await self._script("mark.sh")
        if result.exit_code != 0 or not result.stdout.strip():
            raise SandboxError(f"cannot list the sandbox's processes ({result.exit_code}): {result.stderr[-500:]}")
        self._mark = result.stdout.strip()

    async def end(self) -> None:
        """Kill everything that started since `mark()`; nothing to do when that was never reached.

        Raises:
            SandboxError: when some process survived, or the sandbox is gone.
        """
        if self._mark is None:
            return
        if isinstance(self.runtime, EndsProcesses):
            await self.runtime.end_agent_processes()
            return
        result = await self._script("end.sh", self._mark)
        if result.exit_code != 0:
            raise SandboxError(f"the agent's processes could not be ended ({result.exit_code}): {result.stderr[-500:]}")

    async def _check_namespace(self) -> None:
        """`end.sh` kills by exclusion, so it must never run among the processes of this machine."""
        if not self.runtime.is_local:
            return
        result = await self.runtime.run(["readlink", "/proc/self/ns/pid"], {})
        if result.exit_code != 0 or result.stdout.strip() == os.readlink("/proc/self/ns/pid"):
            raise SandboxError(
                f"the {self.runtime.type} sandbox shares this machine's processes, so the agent's could not be told "
                "apart and ended: use the confined local sandbox, docker, podman or a remote runtime"
            )

    async def _script(self, name: str, *args: str) -> ProgramResult:
        # As the default user, usually root: the agent's own user could not end what other users run.
        box = self.runtime.with_user(None) if self.runtime.user is not None else self.runtime
        return await box.run(["sh", "-c", program(name), name, *args], {})
