"""Files of the sandbox, as the host reads and writes them.

Invariant: paths are resolved by process 1, inside. What crosses is a descriptor of a regular file (reading) or of an
anonymous one (writing), so neither a path nor a special file of the agent's ever meets the host.
"""

import asyncio
import os

from verifiers.v1.errors import SandboxError

from rollout_sandbox.confined.channel import Channel
from rollout_sandbox.confined.supervisor.messages import memfd

READ_LIMIT_BYTES = 256 << 20
"""The most that a read without `max_bytes` takes into the host's memory."""
_INLINE_BYTES = 1 << 20


def _read_and_close(fd: int, limit: int) -> bytes:
    data = bytearray()
    try:
        while len(data) < limit and (chunk := os.read(fd, min(_INLINE_BYTES, limit - len(data)))):
            data += chunk
    finally:
        os.close(fd)
    return bytes(data)


async def read_file(channel: Channel, path: str, max_bytes: int | None) -> bytes:
    """Return the first `max_bytes` bytes of a regular file, or all of it if that is at most `READ_LIMIT_BYTES`."""
    try:
        (fd,) = (await channel.request("read", path)).fds
    except SandboxError as error:
        raise SandboxError(f"read {path!r}: {error}") from error
    limit = READ_LIMIT_BYTES + 1 if max_bytes is None else max_bytes
    if os.fstat(fd).st_size > _INLINE_BYTES:
        data = await asyncio.to_thread(_read_and_close, fd, limit)
    else:
        data = _read_and_close(fd, min(limit, READ_LIMIT_BYTES + 1))
    if max_bytes is None and len(data) > READ_LIMIT_BYTES:
        raise SandboxError(f"read {path!r}: over {READ_LIMIT_BYTES} bytes; give max_bytes")
    return data


async def read_answer(channel: Channel, path: str, max_bytes: int) -> bytes | str:
    """Return the content of the regular file at the absolute `path`, or in one word why there is none to be had:
    `absent`, `symlink`, `not_a_file`, `unreadable`, `oversized` (more than `max_bytes`)."""
    reply = await channel.request("answer", path)
    if reply.text:
        return reply.text
    (fd,) = reply.fds
    data = await asyncio.to_thread(_read_and_close, fd, max_bytes + 1)
    return data if len(data) <= max_bytes else "oversized"


async def write_file(channel: Channel, path: str, data: bytes) -> None:
    """Replace the file at `path`, not what a symlink there points to, with mode 0644; make its parents."""
    try:
        source = memfd(data) if len(data) <= _INLINE_BYTES else await asyncio.to_thread(memfd, data)
        await channel.request("write", path, fds=(source,))
    except (SandboxError, OSError) as error:
        raise SandboxError(f"write {path!r}: {error}") from error
