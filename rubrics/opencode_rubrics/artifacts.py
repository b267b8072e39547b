"""What an agent made, carried from its sandbox into the one that scores it.

Invariant: no artifact can leave its own path in the second sandbox, and it is the agent's doing, not an error, when
one cannot be carried.
"""

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import verifiers.v1 as vf
from agent_sandbox.toolbox.alive import require_alive
from verifiers.v1.utils.artifacts import Artifact, collect, restore

from opencode_rubrics.errors import ScoringError

_SECONDS = 300.0


class ArtifactProblem(Exception):
    """What the agent left cannot be carried; the message says why."""


class _Place:
    """A sandbox as verifiers' functions ask for it; without a runtime, one in which everything works."""

    def __init__(self, runtime: vf.Runtime | None, workdir: str) -> None:
        self._runtime = runtime
        # Not the sandbox's own configuration: verifiers refuses a confined sandbox for the type that it goes by.
        self.config = SimpleNamespace(type="box", workdir=workdir)

    async def run(self, argv: list[str], env: dict[str, str]) -> vf.ProgramResult:
        if self._runtime is None:
            return vf.ProgramResult(exit_code=0, stdout="", stderr="")
        return await self._runtime.run(argv, env)

    async def read(self, path: str, max_bytes: int | None = None) -> bytes:
        assert self._runtime is not None
        return await self._runtime.read(path, max_bytes)

    async def write(self, path: str, data: bytes) -> None:
        if self._runtime is not None:
            await self._runtime.write(path, data)


async def carry_artifacts(paths: Sequence[str], origin: tuple[vf.Runtime, str], target: tuple[vf.Runtime, str]) -> None:
    """Put what is at `paths` and below /logs/artifacts in one sandbox at the same paths of another.

    A path that is missing is removed in the other, too. A sandbox is named with its work directory.

    Raises:
        ArtifactProblem: what the agent left is too large, leads outside, or cannot be read.
        SandboxError: a sandbox is gone.
        ScoringError: the other sandbox could not take them.
    """
    wanted = [Artifact(source=path, required=False) for path in paths]
    place: Any = _Place(*origin)
    nowhere: Any = _Place(None, target[1])
    try:
        async with asyncio.timeout(_SECONDS):
            collected = await collect(place, wanted)
        await restore(nowhere, collected)
    except (RuntimeError, vf.SandboxError, TimeoutError) as error:
        await require_alive(origin[0], "collecting artifacts")
        raise ArtifactProblem(f"the artifacts cannot be carried: {error or 'out of time'}") from error
    there: Any = _Place(*target)
    try:
        await restore(there, collected)
    except RuntimeError as error:
        raise ScoringError(f"the verifier's sandbox could not take the artifacts: {error}") from error
