"""Promises about what cannot be seen from inside, and about limits: what goes beyond ends, and all else works on."""

import asyncio
import contextlib
import os
import tempfile
import uuid
from functools import partial
from pathlib import Path
from typing import Any
from unittest import SkipTest

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from rollout_sandbox.conformance.plugin import require_python
from rollout_sandbox.conformance.subject import (
    PATIENCE_SECONDS,
    Subject,
    peer,
    program,
    runs,
    shell,
    until,
    unused_seconds,
)

_PROCESSES = 100
_FILL_DISK = "i=0; while [ $i -lt 2000 ]; do i=$((i+1)); head -c 1M /dev/zero >f$i || exit 3; done"


def limited(subject: Subject, **options: Any) -> dict[str, Any]:
    """The option that the runtime has for a limit (`NotAsked`: it has none of these)."""
    for name, value in options.items():
        if subject.has(name):
            return {name: value}
    raise SkipTest(f"its configuration has none of {', '.join(options)}")


async def test_memory_beyond_the_limit_is_killed_and_the_shell_sees_it(subject: Subject) -> None:
    """Bound the memory of all processes together (a control group), and kill the largest, not the sandbox."""
    async with subject.box(**limited(subject, max_memory="256MiB", memory=0.25)) as box:
        await require_python(box)
        result = await shell(box, "(python3 -c 'x = bytearray(1 << 30)') & wait $!; echo $?; echo alive")
        assert result.stdout.split() == ["137", "alive"], f"1 GB with a limit of 256 MiB: {result}"
        assert (await box.run(["true"], {})).exit_code == 0, "nothing runs in the sandbox any more"


async def test_a_fork_bomb_stops_at_its_limit_and_other_commands_start(subject: Subject) -> None:
    """Bound processes by control group or user namespace, and count those of each sandbox apart."""
    limit = limited(subject, max_processes=_PROCESSES, run_options=[f"--pids-limit={_PROCESSES}"])
    async with subject.box(**limit) as box, subject.box(**limit) as neighbour:
        await require_python(box)
        result = await box.run(program("many_processes.py", "400"), {})
        assert "unavailable" in result.stdout, f"400 processes with a limit of {_PROCESSES}: {result}"
        made = int(result.stdout.split()[0])
        assert _PROCESSES // 2 < made < _PROCESSES, f"it stopped at {made} with a limit of {_PROCESSES}"
        for name, each in (("the sandbox", box), ("its neighbour", neighbour)):
            result = await each.run(["true"], {})
            assert result.exit_code == 0, f"nothing starts in {name} any more: {result}"


async def test_what_fills_the_disk_is_ended_and_the_sandbox_works_on(subject: Subject) -> None:
    """Bound the files of a sandbox (a quota, a file system of its own, or a watch)."""
    async with subject.box(**limited(subject, max_disk="32MiB")) as box:
        result = await shell(box, _FILL_DISK)
        assert result.exit_code != 0, "2 GB were written with a limit of 32 MiB"
        again = await shell(box, "rm -f f*; echo x >x; cat x")
        assert again.stdout == "x\n", again


_PLACES = ("here", "/tmp/{}", "/dev/shm/{}", "/var/tmp/{}", "/run/{}")
_WRITABLE = (
    "{ printf '%s\\n' / /* /*/* /*/*/*; cut -d' ' -f2 /proc/mounts; } | while read -r d; do "
    'case $d in /proc*|/sys*) continue;; esac; [ -d "$d" ] && [ -w "$d" ] && [ ! -h "$d" ] && echo "$d"; done | sort -u'
)
_AGAINST_ALL_THAT_FOLLOWS = (
    "{ kill -9 1; kill -19 1; for file in oom_adj oom_score_adj; do echo 15 >/proc/1/$file; done; "
    "for file in /etc/passwd /etc/group; do rm $file && mkfifo $file; done; } 2>/dev/null"
)
_EACH = 'printf "%s\\n" "$2" | while read -r d; do {} && echo "$d"; done'


async def test_nothing_of_the_hosts_environment_comes_in(subject: Subject) -> None:
    """Start the sandbox, and what runs commands in it, with an empty environment."""
    secret = uuid.uuid4().hex
    os.environ[f"SECRET_{secret}"] = secret
    try:
        async with subject.box() as box:
            seen = await shell(box, "env; cat /proc/[0-9]*/environ 2>/dev/null | tr '\\0' '\\n'")
    finally:
        del os.environ[f"SECRET_{secret}"]
    assert secret not in seen.stdout, "a command sees a variable of this process"


async def test_no_file_of_the_host_is_read_or_written(subject: Subject) -> None:
    """Give the sandbox a root of its own, and resolve paths inside it, links included."""
    with tempfile.TemporaryDirectory() as directory:
        os.chmod(directory, 0o777)
        path = Path(directory, "secret")
        path.write_text("host secret")
        path.chmod(0o666)
        async with subject.box() as box:
            assert (await box.run(["cat", str(path)], {})).exit_code != 0, "a command reads a file of the host"
            await shell(box, 'ln -s "$1" link; ln -s "$2" dir', str(path), directory)
            for name in (str(path), "link", f"/../../../..{path}"):
                with contextlib.suppress(SandboxError):
                    assert await box.read(name) != b"host secret", f"`read` of {name} gave a file of the host"
            for name in ("link", "dir/planted"):
                with contextlib.suppress(SandboxError):
                    await box.write(name, b"planted")
        assert path.read_text() == "host secret", "a file of the host was changed"
        assert os.listdir(directory) == ["secret"], "a file was made on the host"


async def test_no_process_of_the_host_or_of_a_neighbour_is_seen(subject: Subject) -> None:
    """Give each sandbox a process namespace of its own with its own /proc."""
    neighbours, hosts = unused_seconds(), unused_seconds()
    async with subject.box() as box, subject.box() as neighbour:
        await neighbour.run_background(["sleep", neighbours], {}, "log")
        await until(partial(runs, neighbour, f"sleep {neighbours}"))
        own = await asyncio.create_subprocess_exec("sleep", hosts)
        try:
            assert not await runs(box, f"sleep {hosts}"), "a process of the host is seen"
        finally:
            own.kill()
            await own.wait()
        assert not await runs(box, f"sleep {neighbours}"), "a process of another sandbox is seen"


async def test_nothing_inside_ends_the_sandbox_or_holds_up_a_later_command(subject: Subject) -> None:
    """Keep process 1 out of reach of what runs inside, and open no file of the sandbox's that can block."""
    async with subject.box() as box:
        seen, host = (await shell(box, "stat -c '%d %i' /")).stdout.split(), os.stat("/")
        assert seen != [str(host.st_dev), str(host.st_ino)], "its root is the host's, which this would harm"
        own = await asyncio.create_subprocess_exec("sleep", seconds := unused_seconds())
        try:
            assert not await runs(box, f"sleep {seconds}"), "it sees the processes of the host, which this would harm"
        finally:
            own.kill()
            await own.wait()
        await shell(box, _AGAINST_ALL_THAT_FOLLOWS)
        async with asyncio.timeout(PATIENCE_SECONDS):
            assert (await shell(box, "echo here")).stdout == "here\n", "no command runs any more"


async def test_what_one_sandbox_writes_another_does_not_see(subject: Subject) -> None:
    """Give each sandbox its own work directory, /tmp, /dev/shm, /var/tmp and home."""
    name = f"mine-{uuid.uuid4().hex}"
    async with subject.box() as box, subject.box() as neighbour:
        for place in (*(one.format(name) for one in _PLACES), f"/tmp/{name}-dir/below"):
            with contextlib.suppress(SandboxError):  # a place that this sandbox has not
                await box.write(place, b"mine")
                assert (await neighbour.run(["test", "-e", place], {})).exit_code != 0, f"{place} is seen"
                await box.run(["rm", "-r", "--", place], {})


async def test_no_writable_directory_is_shared_by_two_sandboxes(subject: Subject) -> None:
    """Mount what sandboxes share read-only: tools, caches, volumes."""
    mark = f"mark-{uuid.uuid4().hex}"
    async with subject.box() as box, subject.box() as neighbour:
        root, host = (await shell(box, "stat -c '%d %i' /")).stdout.split(), os.stat("/")
        assert root != [str(host.st_dev), str(host.st_ino)], "its root is the host's"
        writable = (await shell(box, _WRITABLE)).stdout.strip()
        assert bool(writable), "nothing can be written inside"
        marked = (await shell(box, _EACH.format('touch "$d/$1" 2>/dev/null'), mark, writable)).stdout.strip()
        seen = (await shell(neighbour, _EACH.format('[ -e "$d/$1" ]'), mark, marked)).stdout.splitlines()
        await shell(box, _EACH.format('rm -f "$d/$1"'), mark, marked)
        assert not seen, f"both can write {', '.join(seen)}"


async def test_no_port_or_socket_of_a_neighbour_is_reached(subject: Subject) -> None:
    """Give each sandbox a network namespace of its own."""
    name = uuid.uuid4().hex
    async with subject.box() as box, subject.box() as neighbour:
        await require_python(box)
        for host, port in (("unix", name), ("127.0.0.1", "47813")):
            await neighbour.run_background(peer("listen", host, port), {}, "log")
            await until(partial(_has_said, neighbour, "ready"))
            own = await neighbour.run(peer("ask", host, port), {})
            assert own.stdout == "inside", f"a socket of its own ({host}) answered {own}"
            reached = await box.run(peer("ask", host, port), {})
            assert "inside" not in reached.stdout, f"a socket of another sandbox was reached ({host})"
            await neighbour.run(["rm", "log"], {})


async def _has_said(box: vf.Runtime, word: str) -> bool:
    return word in (await shell(box, "cat log")).stdout
