"""Promises about files: what is written is read back, reads are bounded, and nothing odd is waited for."""

import asyncio
import contextlib

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from rollout_sandbox.conformance.promises import Broken, Subject, promise, require, shell

ODD_PATHS = ("/tmp/a b/$(id)/'q\".txt", "-n", "/tmp/-r/--", "relative/näm\né", "/tmp/deep/er/file")
_LARGE = bytes(range(256)) * (16 << 12)
_ANSWER_SECONDS = 30.0
_IRREGULAR = (
    ("true", "/tmp/missing"),
    ("mkdir /tmp/dir", "/tmp/dir"),
    ("mkfifo /tmp/fifo", "/tmp/fifo"),
    ("true", "/dev/zero"),
    ("ln -s loop /tmp/loop", "/tmp/loop"),
)


async def refused(box: vf.Runtime, path: str, most: int | None, what: str) -> None:
    """Return if a read ends in a `SandboxError` within half a minute; the promise is `Broken` if not."""
    try:
        async with asyncio.timeout(_ANSWER_SECONDS):
            found = await box.read(path, most)
    except SandboxError:
        return
    except TimeoutError:
        raise Broken(f"reading {what} was not over in {_ANSWER_SECONDS:g} s") from None
    raise Broken(f"reading {what} gave {len(found)} bytes")


@promise(
    "Bytes that are written under odd names, in directories that are not there yet, are read back",
    change="make the parents, and give the path to programs as an argument behind `--`, never in a line of shell",
)
async def odd_names(subject: Subject) -> None:
    data = bytes(range(256)) * 500
    async with subject.box() as box:
        for path in ODD_PATHS:
            await box.write(path, data)
            require(await box.read(path) == data, f"{path!r} came back otherwise")
            require(await box.read(path, len(data)) == data, f"{path!r} came back otherwise within its own size")
        await box.write("empty", b"")
        require(await box.read("empty") == b"", "an empty file came back otherwise")


@promise("A file of 16 MB arrives whole", change="send and receive in pieces; an argument has 128 KiB at most")
async def large_files(subject: Subject) -> None:
    async with subject.box() as box:
        await box.write("/tmp/large", _LARGE)
        require(await box.read("/tmp/large") == _LARGE, "it came back otherwise")


@promise(
    "A read with a limit takes no more than that into the host's memory, and refuses what is larger",
    change="read the limit and one byte inside the sandbox, and raise a SandboxError when there is that byte",
)
async def bounded_reads(subject: Subject) -> None:
    async with subject.box() as box:
        await shell(box, "truncate -s 2G /tmp/sparse; printf 12345 >/tmp/five")
        require(await box.read("/tmp/five", 5) == b"12345", "a file of exactly the limit came back otherwise")
        await refused(box, "/tmp/five", 4, "a file of one byte more than the limit")
        await refused(box, "/tmp/sparse", 1_000_000, "a file of 2 GB with a limit of 1 MB")


@promise(
    "A read of what is not a regular file is refused at once",
    change="look at the kind of file before it is opened, or open it with O_NONBLOCK",
)
async def irregular_files(subject: Subject) -> None:
    async with subject.box() as box:
        for make, path in _IRREGULAR:
            await shell(box, make)
            await refused(box, path, 1000, path)


@promise(
    "A write to what is a directory, or cannot be written, is an error",
    change="look at what the program that writes says, and raise a SandboxError",
)
async def failing_writes(subject: Subject) -> None:
    async with subject.box() as box:
        for path in ("/tmp", "/proc/self/x"):
            with contextlib.suppress(SandboxError):
                await box.write(path, b"x")
                raise Broken(f"a write to {path} succeeded")
