"""Writes OpenCode's state directory into a sandbox, and does it again between two segments."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from agent_sandbox.toolbox.archives import archive_arguments
from opencode_rubrics import run_checked
from verifiers.v1.errors import HarnessError, RolloutError, SandboxError
from verifiers.v1.runtimes import ProgramResult, Runtime

from opencode_env.opencode.state import STATE_BASE, program

_FIRST, _AGAIN = "preparing OpenCode's files failed", "preparing OpenCode's files again failed"

NO_PROGRAM = 3
"""Exit code when there is no OpenCode."""


@dataclass(frozen=True)
class Preparation:
    """Writes state directories for one OpenCode in one sandbox."""

    runtime: Runtime
    workdir: str
    programs: str
    """Directory of OpenCode inside."""

    async def first(self, archive: bytes, then: str) -> ProgramResult:
        """Unpack the archive into a new directory, whose path is printed, and run a script behind that.

        The exit code may be `NO_PROGRAM`.
        """
        argv = [STATE_BASE, "", *await self._arguments(archive)]
        script = program("prepare.sh") + then
        accepted = (0, NO_PROGRAM)
        return await self._run(script, argv, _FIRST, accepted, SandboxError)

    async def again(self, archive: bytes, state: str, session: str) -> None:
        """Put the archive in the place of `state`, which keeps what belongs to the conversation and to the agent.

        Raises:
            HarnessError: it could not be done in a sandbox that lives: the agent can have seen to that.
        """
        argv = [state, session, *await self._arguments(archive)]
        await self._run(program("prepare.sh"), argv, _AGAIN, (0,), HarnessError)

    async def _arguments(self, archive: bytes) -> list[str]:
        content = archive_arguments(archive)
        if not content:
            path = f"/tmp/.opencode-{uuid.uuid4().hex}.tar"
            await self.runtime.write(path, archive)
            content = [f"@{path}"]
        return [self.workdir, self.programs, *content]

    async def _run(
        self, script: str, argv: Sequence[str], failure: str, accepted: Sequence[int], error: type[RolloutError]
    ) -> ProgramResult:
        return await run_checked(
            self.runtime, ["sh", "-c", script, "prepare", *argv], failure, accepted=accepted, error=error
        )
