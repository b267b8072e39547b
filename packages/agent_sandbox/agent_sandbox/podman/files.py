"""Files of a container, read and written by the image's own `sh`, `head` and `cat`.

Invariant: the host takes no more than it asked for, whatever program stands under those names, and waits for nothing
but a regular file.
"""

import asyncio
import contextlib

from verifiers.v1.errors import SandboxError

from agent_sandbox.confined.files import READ_LIMIT_BYTES
from agent_sandbox.confined.output import BoundedOutput
from agent_sandbox.podman.commands import Commands, PodmanProcess
from agent_sandbox.programs import program_argv


async def read_file(commands: Commands, path: str, max_bytes: int | None, user: str | None) -> bytes:
    """Return the first `max_bytes` bytes of a regular file, or all of it if that is at most `READ_LIMIT_BYTES`."""
    limit = READ_LIMIT_BYTES + 1 if max_bytes is None else max_bytes
    process = await commands.open(program_argv("read_file.sh", path, str(limit)), {}, user, interactive=False)
    code, data, error = await _exchange(process, b"", limit)
    if code != 0 and len(data) <= limit:
        raise SandboxError(f"read {path!r}: {error}")
    if max_bytes is None and len(data) > READ_LIMIT_BYTES:
        raise SandboxError(f"read {path!r}: over {READ_LIMIT_BYTES} bytes; give max_bytes")
    return data[:limit]


async def write_file(commands: Commands, path: str, data: bytes, user: str | None) -> None:
    """Write the regular file at `path`, or the one that a symlink there leads to; make its parents."""
    process = await commands.open(program_argv("write_file.sh", path), {}, user)
    code, _, error = await _exchange(process, data, 0)
    if code != 0:
        raise SandboxError(f"write {path!r}: {error}")


async def _exchange(process: PodmanProcess, data: bytes, limit: int) -> tuple[int, bytes, str]:
    """Feed `data` to a process; its exit code, its output and the end of its stderr. A process that prints more than
    `limit` bytes is ended there, and `limit` + 1 of them are returned."""
    output = bytearray()
    error = BoundedOutput(limit_bytes=3000)

    async def feed() -> None:
        with contextlib.suppress(OSError):  # it ended without reading all, and its exit code says why
            await process.write(data)
        process.close_stdin()

    async def collect() -> None:
        async for chunk in process.stdout:
            output.extend(chunk[: limit + 1 - len(output)])
            if len(output) > limit:
                await process.kill()
                return

    async def collect_error() -> None:
        async for chunk in process.stderr:
            error.feed(chunk)

    try:
        await asyncio.gather(feed(), collect(), collect_error())
        return await process.wait(), bytes(output), error.text().strip()
    except BaseException:
        await process.kill()
        raise
    finally:
        await process.release()
