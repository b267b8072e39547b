"""What a shell program in a sandbox and its host tell each other over its streams: a file, or how a command ended."""

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult, RuntimeProcess

from rollout_sandbox.confined.channel import READ_LIMIT_BYTES
from rollout_sandbox.confined.process import BoundedOutput
from rollout_sandbox.programs import program_argv

Ask = Callable[[list[str], bytes, int], Awaitable[tuple[int, bytes, str]]]
"""Runs a program inside by its words, with what `exchange` takes and returns."""

COMMAND_ID_VARIABLE = "OPENCODE_ENV_COMMAND"
"""By its value `remote_end.sh` finds what a command started."""
OUTPUT_BYTES = 10 << 20
"""The end of each stream that is kept; verifiers keeps as much."""
_HEAD_BYTES = 200
"""More than any line that says how a command ended."""
PRINTED_BYTES = 2 * OUTPUT_BYTES + _HEAD_BYTES
"""The most that `remote_run.sh` prints of a command."""
_ENDED = re.compile(rb"ended (\d{1,3}) (\d{1,8}) (\d{1,8})")
_NOT_STARTED = 125
_STDERR_BYTES = 3000


async def exchange(process: RuntimeProcess, data: bytes, limit: int) -> tuple[int, bytes, str]:
    """Feed `data` to a process; its exit code, its output and the end of its stderr. A process that prints more than
    `limit` bytes is ended there, and `limit` + 1 of them are returned; cancelled, it is ended first."""
    output = bytearray()
    stderr = BoundedOutput(_STDERR_BYTES)

    async def feed() -> None:
        with contextlib.suppress(OSError, SandboxError):  # it ended without reading all, and its exit code says why
            await process.write(data)

    async def collect() -> None:
        async for chunk in process.stdout:
            output.extend(chunk[: limit + 1 - len(output)])
            if len(output) > limit:
                await process.kill()
                return

    async def collect_stderr() -> None:
        async for chunk in process.stderr:
            stderr.feed(chunk)

    try:
        await asyncio.gather(feed(), collect(), collect_stderr())
        return await process.wait(), bytes(output), stderr.text().strip()
    except BaseException:
        with contextlib.suppress(SandboxError):
            await process.kill()
        raise


async def read_file(ask: Ask, path: str, max_bytes: int | None) -> bytes:
    """The first `max_bytes` of a regular file, or all of it, which is bounded, too."""
    limit = READ_LIMIT_BYTES + 1 if max_bytes is None else max_bytes
    code, data, stderr = await ask(program_argv("read_file.sh", path, str(limit)), b"", limit)
    if code != 0 and len(data) <= limit:
        raise SandboxError(f"read {path!r}: {stderr}")
    if max_bytes is None and len(data) > READ_LIMIT_BYTES:
        raise SandboxError(f"read {path!r}: over {READ_LIMIT_BYTES} bytes; give max_bytes")
    return data[:limit]


async def write_file(ask: Ask, path: str, data: bytes) -> None:
    """Write the regular file at `path`, or the one that a symlink there leads to; make its parents."""
    code, _, stderr = await ask(program_argv("write_file.sh", path, str(len(data))), data, 0)
    if code != 0:
        raise SandboxError(f"write {path!r}: {stderr}")


def command_end(printed: bytes) -> ProgramResult:
    """Read what `remote_run.sh` prints of a command; the message of a `ValueError` is what it prints else."""
    head, _, rest = printed.partition(b"\n")
    if head == b"full":
        return ProgramResult(_NOT_STARTED, "", "the command was not run: no space is left on the sandbox's disk\n")
    if (ended := _ENDED.fullmatch(head)) is None:
        raise ValueError(printed[:_HEAD_BYTES].decode(errors="replace").rstrip("\n") or "no word of it")
    code, out, err = map(int, ended.groups())
    if len(rest) != out + err:
        raise ValueError(f"{len(rest)} of {out + err} bytes of output")
    return ProgramResult(code, rest[:out].decode(errors="replace"), rest[out:].decode(errors="replace"))
