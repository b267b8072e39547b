"""Promises about commands and files.

Of commands: what they are given, what they return, and that ending one ends all of it. Of files: what is written is
read back, reads are bounded, and nothing odd is waited for.
"""

import asyncio
import contextlib
from functools import partial
from unittest import SkipTest

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from rollout_sandbox.compat import backend_of, start_process, starts_processes, supports_users
from rollout_sandbox.conformance.subject import (
    Subject,
    host_pids_of,
    runs,
    shell,
    until,
    unused_seconds,
)
from rollout_sandbox.toolbox.command import run_command

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
        raise AssertionError(f"reading {what} was not over in {_ANSWER_SECONDS:g} s") from None
    raise AssertionError(f"reading {what} gave {len(found)} bytes")


async def test_files_under_odd_names_are_read_back(subject: Subject) -> None:
    """Make the parents, and give the path to programs as an argument behind `--`, never in a line of shell."""
    data = bytes(range(256)) * 500
    async with subject.box() as box:
        for path in ODD_PATHS:
            await box.write(path, data)
            assert await box.read(path) == data, f"{path!r} came back otherwise"
            assert await box.read(path, len(data)) == data, f"{path!r} came back otherwise within its own size"
        await box.write("empty", b"")
        assert await box.read("empty") == b"", "an empty file came back otherwise"


async def test_a_file_of_16_mb_arrives_whole(subject: Subject) -> None:
    """Send and receive in pieces; an argument has 128 KiB at most."""
    async with subject.box() as box:
        await box.write("/tmp/large", _LARGE)
        assert await box.read("/tmp/large") == _LARGE, "it came back otherwise"


async def test_a_read_with_a_limit_refuses_what_is_larger(subject: Subject) -> None:
    """Give the first `max_bytes` bytes of any file, cut inside: the view asks for one byte more, and refuses."""
    async with subject.box() as box:
        await shell(box, "truncate -s 2G /tmp/sparse; printf 12345 >/tmp/five")
        assert await box.read("/tmp/five", 5) == b"12345", "a file of exactly the limit came back otherwise"
        await refused(box, "/tmp/five", 4, "a file of one byte more than the limit")
        await refused(box, "/tmp/sparse", 1_000_000, "a file of 2 GB with a limit of 1 MB")


async def test_a_read_of_what_is_not_a_regular_file_is_refused_at_once(subject: Subject) -> None:
    """Look at the kind of file before it is opened, or open it with O_NONBLOCK."""
    async with subject.box() as box:
        for make, path in _IRREGULAR:
            await shell(box, make)
            await refused(box, path, 1000, path)


async def test_a_write_that_cannot_be_done_is_an_error(subject: Subject) -> None:
    """Look at what the program that writes says, and raise a SandboxError."""
    async with subject.box() as box:
        for path in ("/tmp", "/proc/self/x"):
            with contextlib.suppress(SandboxError):
                await box.write(path, b"x")
                raise AssertionError(f"a write to {path} succeeded")


_LONG = "x" * 100_000
_DELAYS_S = (0.01, 0.02, 0.05, 0.1, 0.2)
_START_DELAYS_S = (0.0, 0.05, 0.2, 0.5)
_WORKDIR = "/work/of this task"


async def test_a_command_has_its_variables_its_directory_and_its_own_streams(subject: Subject) -> None:
    """Run the argument vector as it is, in the configured work directory, with the variables of the call."""
    async with subject.box() as box:
        result = await shell(box, 'printf %s "$WORDS"; echo broken >&2; exit 3', WORDS="ü\ntwo $HOME 'q")
        assert (result.exit_code, result.stdout, result.stderr) == (3, "ü\ntwo $HOME 'q", "broken\n"), result
        await box.write("here", b"")
        found = await shell(box, "test -e here")
        assert found.exit_code == 0, "a relative path of `write` and the directory of commands are not the same"


async def test_the_work_directory_is_the_configured_one(subject: Subject) -> None:
    """Make the directory that the field `workdir` names, start every command in it, and resolve paths from it."""
    if not subject.has("workdir"):
        raise SkipTest("its configuration has no `workdir`")
    async with subject.box(workdir=_WORKDIR) as box:
        found = await box.run(["pwd"], {})
        assert found.stdout == f"{_WORKDIR}\n", f"a command starts elsewhere: {found}"
        await box.write("mine", b"here")
        assert await box.read(f"{_WORKDIR}/mine") == b"here", "a relative path of `write` leads elsewhere"
        await box.run_background(["sh", "-c", "cat mine; pwd"], {}, "log")

        async def logged() -> bool:
            return await box.read(f"{_WORKDIR}/log") == f"here{_WORKDIR}\n".encode()

        await until(logged)
        if starts_processes(box):
            process = await start_process(box, ["pwd"], {})
            said = b"".join([chunk async for chunk in process.stdout])
            assert said == f"{_WORKDIR}\n".encode(), f"a live process starts elsewhere: {said!r}"


async def test_long_arguments_arrive_and_standard_input_is_empty(subject: Subject) -> None:
    """Pass arguments and variables without a shell or a message of bounded size, and stdin from /dev/null."""
    async with subject.box() as box:
        result = await shell(box, 'echo "${#1} ${#2} ${#V}"; cat', _LONG, _LONG, V=_LONG)
        assert result.stdout == "100000 100000 100000\n", result.stdout[:200] or result.stderr[:200]


async def test_exit_codes_tell_a_missing_program_and_a_signal(subject: Subject) -> None:
    """Return what the kernel or the shell says instead of raising: scoring takes a failing program as data."""
    async with subject.box() as box:
        missing = await box.run(["no-such-program"], {})
        assert missing.exit_code == 127, f"a missing program: {missing}"
        for signal in (9, 15):
            killed = await shell(box, f"kill -{signal} $$")
            assert killed.exit_code in (-signal, 128 + signal), f"signal {signal}: {killed}"
        assert await box.alive(), "the sandbox did not outlive a failing command"


async def test_output_of_300_mb_is_kept_in_bounded_memory(subject: Subject) -> None:
    """Keep the end of each stream, at most some MB, and read on so that the command can end."""
    async with subject.box() as box:
        result = await shell(box, f"echo first; head -c {300 << 20} /dev/zero | tr '\\0' x; echo; echo last")
        assert result.exit_code == 0, f"exit code {result.exit_code}"
        assert len(result.stdout) <= 64 << 20, f"{len(result.stdout)} characters were kept"
        assert result.stdout.endswith("x\nlast\n"), f"it ends in {result.stdout[-40:]!r}"


async def test_a_command_is_over_although_its_child_holds_its_output(subject: Subject) -> None:
    """Wait for the process, not for the end of its pipes."""
    seconds = unused_seconds()
    async with subject.box() as box:
        # The shell forks first; only then does the copy become the program.
        is_program = f"""[ "$(tr '\\0' ' ' </proc/$!/cmdline)" = "sleep {seconds} " ]"""
        result = await shell(box, f"sleep {seconds} & until {is_program}; do :; done; echo started")
        assert result.stdout == "started\n", result
        assert await runs(box, f"sleep {seconds}"), "what it left in the background was ended with it"


async def test_a_background_command_writes_its_log_and_runs_on(subject: Subject) -> None:
    """Start it in a session of its own with both streams in the file."""
    seconds = unused_seconds()
    async with subject.box() as box:
        script = f'echo "$1 & $2"; echo err >&2; exec sleep {seconds}'
        await box.run_background(["sh", "-c", script, "x", "a'b", "c d"], {}, "my log")
        await until(partial(runs, box, f"sleep {seconds}"))
        log = await box.read("my log")
        assert log == b"a'b & c d\nerr\n", log


async def test_a_cancelled_command_is_dead_with_all_that_it_started(subject: Subject) -> None:
    """Find the whole tree from outside (a process namespace, a control group, a mark in the environment) and kill it
    before `run` raises CancelledError."""
    before, *numbers = (unused_seconds() for _ in range(4))
    async with subject.box() as box:
        await box.run_background(["sleep", before], {}, "log")
        script = "setsid sleep {} & (setsid sleep {} <&- >&- 2>&- &); sleep {}".format(*numbers)
        task = asyncio.ensure_future(shell(box, script))
        for number in (before, *numbers):
            await until(partial(runs, box, f"sleep {number}"))
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled(), "`run` did not raise CancelledError"
        left = [number for number in numbers if await runs(box, f"sleep {number}")]
        assert not left, f"{len(left)} of its {len(numbers)} processes live"
        assert await runs(box, f"sleep {before}"), "a process that another command started was ended, too"


async def test_a_command_cancelled_while_it_starts_does_not_run_on(subject: Subject) -> None:
    """Shield the start, then end what it started."""
    seconds = unused_seconds()
    async with subject.box() as box:
        for waits, delay in (*((waits, 0.0) for waits in range(6)), *((1, delay) for delay in _DELAYS_S)):
            task = asyncio.ensure_future(box.run(["sleep", seconds], {}))
            for _ in range(waits):
                await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled(), "`run` did not raise CancelledError"
        assert not await runs(box, f"sleep {seconds}"), "one of them lives"


async def test_a_command_that_ignores_sigterm_is_dead_when_its_time_is_over(subject: Subject) -> None:
    """Keep `timeout` and `kill` inside, and let a command see its own /proc."""
    seconds = unused_seconds()
    async with subject.box() as box:
        result = await run_command(box, f"trap '' TERM; setsid sleep {seconds} & wait", workdir="/tmp", timeout=1.0)
        assert result.timed_out, result.ending()
        assert not await runs(box, f"sleep {seconds}"), "what it started lives"


async def test_a_live_process_answers_line_by_line_and_is_killed_with_its_children(subject: Subject) -> None:
    """Give its streams as pipes, unbuffered, and end its tree in `kill`."""
    seconds = unused_seconds()
    async with subject.box() as box:
        if not starts_processes(box):
            raise SkipTest("it has no live processes")
        script = f"setsid sleep {seconds} & while read -r line; do echo got $line; done"
        process = await start_process(box, ["sh", "-c", script], {})
        output = aiter(process.stdout)
        for word in (b"one", b"two"):
            await process.write(word + b"\n")
            answer = await anext(output)
            assert answer == b"got %s\n" % word, answer
        assert await process.poll() is None, "it is over before it was killed"
        await process.kill()
        assert await process.wait() in (-9, 137), f"its exit code is {await process.wait()}"
        assert not await runs(box, f"sleep {seconds}"), "what it started lives"


async def test_a_live_process_is_asked_to_end(subject: Subject) -> None:
    """Send SIGTERM in `terminate`, and wait for nothing."""
    async with subject.box() as box:
        if not starts_processes(box):
            raise SkipTest("it has no live processes")
        script = "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.1; done"
        process = await start_process(box, ["sh", "-c", script], {})
        output = aiter(process.stdout)
        assert await anext(output) == b"on\n"
        await process.terminate()
        left = b"".join([chunk async for chunk in output])
        assert left == b"bye\n", f"after its SIGTERM it said {left!r}"
        assert await process.wait() == 5, f"its exit code is {await process.wait()}"


async def test_commands_and_files_of_another_user_are_that_users(subject: Subject) -> None:
    """Run the commands that read and write files as the user of the view (`with_user`)."""
    async with subject.box() as box:
        if not supports_users(box):
            raise SkipTest("it runs everything as one user")
        other = box.with_user("nobody", "/tmp")
        said = await shell(other, "id -un; echo $HOME")
        assert said.stdout == "nobody\n/tmp\n", f"a command of `nobody`, whose home is /tmp: {said}"
        await other.write("/tmp/of-nobody/file", b"")
        owner = await shell(box, "stat -c %U /tmp/of-nobody/file")
        assert owner.stdout == "nobody\n", f"a file that `nobody` wrote: {owner}"
        await shell(box, "umask 077; echo secret >/tmp/closed")
        with contextlib.suppress(SandboxError):
            await other.read("/tmp/closed")
            raise AssertionError("`nobody` read a file that is closed to it")


async def test_removing_a_sandbox_ends_every_process_in_it(subject: Subject) -> None:
    """Wait in `stop` until the last process is gone, and raise a SandboxError from then on."""
    seconds = unused_seconds()
    async with subject.box() as box:
        await box.run_background(["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"], {}, "log")
        await until(partial(runs, box, f"sleep {seconds}"))
    left = host_pids_of(f"sleep\0{seconds}") if box.is_local else []
    assert not left, f"{len(left)} of its processes live on this machine"
    await backend_of(box).stop()
    with contextlib.suppress(SandboxError):
        result = await box.run(["true"], {})
        raise AssertionError(f"a command ran in it afterwards: {result}")


async def test_cleanup_alone_removes_a_sandbox_without_an_event_loop(subject: Subject) -> None:
    """Remove it with calls that block, in any thread and also twice: a process that ends has no event loop left."""
    seconds = unused_seconds()
    async with subject.box() as box:
        await box.run_background(["sleep", seconds], {}, "log")
        await until(partial(runs, box, f"sleep {seconds}"))
        for _ in range(2):
            await asyncio.to_thread(backend_of(box).cleanup)
        assert not await box.alive(), "it runs commands"
        left = host_pids_of(f"sleep\0{seconds}") if box.is_local else []
        assert not left, f"{len(left)} of its processes live on this machine"


async def test_a_start_that_is_cancelled_leaves_nothing(subject: Subject) -> None:
    """Wait for what was asked for before the cancellation goes on, or remove it without its answer in `stop`."""
    if subject.backend is None:
        raise SkipTest("it is started by verifiers")
    for delay in _START_DELAYS_S:
        backend = subject.backend(subject.config())
        task = asyncio.ensure_future(backend.start())
        await asyncio.sleep(delay)
        task.cancel()
        await asyncio.wait([task])
        await backend.stop()
        with contextlib.suppress(TimeoutError):
            await until(partial(_is_unnamed, backend.name), seconds=_ANSWER_SECONDS)
        left = host_pids_of(backend.name)
        assert not left, f"cancelled after {delay} s, {len(left)} processes of this machine name it"
        with contextlib.suppress(SandboxError):
            result = await backend.bind().run(["true"], {})
            raise AssertionError(f"cancelled after {delay} s, a command ran in it: {result}")


def _is_unnamed(name: str) -> bool:
    return not host_pids_of(name)


async def test_many_sandboxes_start_work_and_end_at_once(subject: Subject) -> None:
    """Share nothing among sandboxes that has a fixed name."""

    async def one(number: int) -> str:
        async with subject.box() as box:
            await box.write("number", str(number).encode())
            return (await shell(box, "sleep 0.05; cat number")).stdout

    said = await asyncio.gather(*(one(number) for number in range(8)))
    assert said == [str(number) for number in range(8)], said
