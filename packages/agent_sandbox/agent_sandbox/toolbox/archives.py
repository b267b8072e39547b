"""Archives on their way into a sandbox: as arguments of the command that unpacks them where they are small."""

import base64
import uuid
from collections.abc import Sequence

import verifiers.v1 as vf

from agent_sandbox.programs import program_argv
from agent_sandbox.toolbox.alive import require_alive
from agent_sandbox.toolbox.checked_run import run_checked

MAX_INLINE_BYTES = 96 * 1024
"""Largest archive, in base64, that travels as arguments instead of a file: saves a request per archive."""
_PIECE = 32 * 1024
_SECONDS = 300.0


def archive_arguments(archive: bytes) -> list[str]:
    """The archive in base64, in pieces that fit on a command line; empty when it is too large for one."""
    packed = base64.b64encode(archive).decode()
    if len(packed) > MAX_INLINE_BYTES:
        return []
    return [packed[start : start + _PIECE] for start in range(0, len(packed), _PIECE)]


async def unpack_archive(
    runtime: vf.Runtime,
    archive: bytes,
    directory: str,
    folders: Sequence[str] = (),
    *,
    failure: str = "",
    error: type[vf.RolloutError] = vf.SandboxError,
) -> None:
    """Add what is in a gzipped tar archive to the absolute path `directory`, which is made where there is none.

    Args:
        folders: directories of the archive, each below its parent, at which no link may stand: one is removed.
        failure: what has failed when this fails, to open the message.
        error: what a failure is in a sandbox that is still alive.

    Raises:
        RolloutError: `error`: the disk is full, `directory` cannot be written, or something stands in the way.
    """
    failure = failure or f"{directory} could not be filled"
    content = archive_arguments(archive)
    if not content:
        path = f"{directory.rstrip('/')}/.{uuid.uuid4().hex}.tar.gz"
        try:
            await runtime.write(path, archive)
        except vf.SandboxError as problem:
            await require_alive(runtime, f"filling {directory}")
            raise error(f"{failure}: {problem}") from problem
        content = [f"@{path}"]
    argv = program_argv("unpack.sh", "into", directory, str(len(folders)), *folders, *content)
    await run_checked(runtime, argv, failure, seconds=_SECONDS, error=error)
