"""File access of the runtime resolves inside the sandbox, is bounded and never hangs."""

import asyncio
import contextlib
import time
from pathlib import Path

import pytest
from rollout_sandbox.confined import ConfinedRuntime
from verifiers.v1.errors import SandboxError

from tests.support.machine import assert_no_longer

from .conftest import sh


async def test_what_is_written_is_read_back_relative_to_the_workdir(runtime: ConfinedRuntime) -> None:
    data = bytes(range(256)) * 40_000
    await runtime.write("deep/er/file", data)
    assert await runtime.read("/app/deep/er/file") == data
    assert (await sh(runtime, "stat -c '%a %s' deep/er/file; ls -A deep/er")).stdout == f"644 {len(data)}\nfile\n"


@pytest.mark.parametrize("way", ["{path}", "../../../../../../../..{path}", "link"])
async def test_a_write_never_reaches_the_host(runtime: ConfinedRuntime, host_secret: Path, way: str) -> None:
    await sh(runtime, f"ln -s {host_secret} link; ln -s {host_secret.parent} dir")
    with contextlib.suppress(SandboxError):  # a directory of that name does not exist inside
        await runtime.write("dir/x", b"planted")
    await runtime.write(way.format(path=host_secret), b"overwritten")
    assert [path.name for path in host_secret.parent.iterdir()] == ["secret"]


async def test_a_write_replaces_a_planted_symlink_instead_of_following_it(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "echo kept > /logs/target; ln -s /logs/target scorer.py")
    await runtime.write("scorer.py", b"trusted")
    assert (await sh(runtime, "cat /logs/target; test -h scorer.py || cat scorer.py")).stdout == "kept\ntrusted"


async def test_a_planted_hard_link_is_not_written_through(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "echo kept > a; ln a b")
    await runtime.write("b", b"new")
    assert await runtime.read("a") == b"kept\n"


async def test_a_write_to_what_is_not_the_agents_is_an_error(runtime: ConfinedRuntime) -> None:
    for path in ("/etc/passwd", "/usr/x", "/x", "/proc/self/x", "/app", "/dev/null", "/proc/1/comm"):
        with pytest.raises(SandboxError, match=f"write '{path}'"):
            await runtime.write(path, b"x")
    assert (await sh(runtime, "ls -A /app; test -c /dev/null && echo device")).stdout == "device\n"


NOT_READ = {
    "No such file": ["missing"],
    "Not a regular file": ["fifo", "/dev/zero", "/dev/tty", "mem", "fd", "e"],
    "Is a directory": ["/tmp"],
    "symbolic links": ["loop"],
    "Permission denied": ["closed"],
}


async def test_a_read_of_anything_but_a_readable_regular_file_is_refused_at_once(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "mkfifo fifo; ln -s loop loop; ln -s /proc/self/mem mem; ln -s /proc/1/fd/0 fd")
    await sh(runtime, "ln -s /proc/self/environ e; echo x > closed; chmod 0 closed")
    started = time.monotonic()
    for reason, path in ((reason, path) for reason, paths in NOT_READ.items() for path in paths):
        for max_bytes in (None, 100):
            with pytest.raises(SandboxError, match=f"read '{path}'.*{reason}"):
                await runtime.read(path, max_bytes)
    assert_no_longer(time.monotonic() - started, 2)


async def test_a_fifos_writer_is_not_woken_by_a_read(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "mkfifo fifo; (echo x > fifo; echo woken > woken) >/dev/null 2>&1 &")
    with pytest.raises(SandboxError):
        await runtime.read("fifo")
    await asyncio.sleep(0.1)
    with pytest.raises(SandboxError, match="No such file"):
        await runtime.read("woken")


async def test_a_read_is_bounded_at_the_source(runtime: ConfinedRuntime) -> None:
    await sh(runtime, "truncate -s 2G sparse; printf 12345 > five")
    with pytest.raises(SandboxError, match="over the 1000 byte limit"):
        await runtime.read("sparse", 1000)
    with pytest.raises(SandboxError, match="give max_bytes"):
        await runtime.read("sparse")
    assert await runtime.read("five", 5) == b"12345"
    with pytest.raises(SandboxError, match="over the 4 byte limit"):
        await runtime.read("five", 4)


async def test_a_nul_byte_in_a_path_is_refused(runtime: ConfinedRuntime) -> None:
    with pytest.raises(ValueError, match="NUL"):
        await runtime.read("a\0b")
    with pytest.raises(ValueError, match="NUL"):
        await runtime.write("a\0b", b"")
    assert await runtime.alive()


async def test_a_file_under_a_lease_does_not_stall_the_sandbox(runtime: ConfinedRuntime) -> None:
    holder = (
        "import fcntl, os, signal\n"
        "signal.signal(signal.SIGIO, signal.SIG_IGN)\n"
        "fd = os.open('held', os.O_RDWR | os.O_CREAT)\n"
        "fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)\n"
        "open('ready', 'w')\n"
        "signal.pause()"
    )
    await runtime.run_background(["python3", "-c", holder], {}, "log")
    await sh(runtime, "while ! test -e ready; do sleep 0.01; done")
    started = time.monotonic()
    with pytest.raises(SandboxError):
        await runtime.read("held")
    assert await runtime.alive()
    assert_no_longer(time.monotonic() - started, 5)
