"""Promises about commands and files.

Of commands: what they are given, what they return, and that ending one ends all of it. Of files: what is written is
read back, reads are bounded, and nothing odd is waited for.
"""

import asyncio
import contextlib
from functools import partial

import verifiers.v1 as vf
from verifiers.v1.errors import SandboxError

from rollout_sandbox.compat import backend_of, start_process, starts_processes, supports_users
from rollout_sandbox.conformance.promises import (
    Broken,
    NotAsked,
    Subject,
    host_pids_of,
    promise,
    require,
    runs,
    shell,
    until,
    unused_seconds,
)
from rollout_sandbox.toolbox.command import run_command
from rollout_sandbox.toolbox.processes import EndsAgentProcesses

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


_LONG = "x" * 100_000
_DELAYS_S = (0.01, 0.02, 0.05, 0.1, 0.2)


@promise(
    "A command has its variables, its work directory and its own exit code, and its two streams come back apart",
    change="run the argument vector as it is, in the configured work directory, with the variables of the call",
)
async def what_goes_in_and_comes_out(subject: Subject) -> None:
    async with subject.box() as box:
        result = await shell(box, 'printf %s "$WORDS"; echo broken >&2; exit 3', WORDS="ü\ntwo $HOME 'q")
        require((result.exit_code, result.stdout, result.stderr) == (3, "ü\ntwo $HOME 'q", "broken\n"), result)
        await box.write("here", b"")
        found = await shell(box, "test -e here")
        require(found.exit_code == 0, "a relative path of `write` and the directory of commands are not the same")


@promise(
    "Arguments and variables of 100,000 bytes arrive, and standard input is empty",
    change="pass arguments and variables without a shell or a message of bounded size, and stdin from /dev/null",
)
async def long_arguments(subject: Subject) -> None:
    async with subject.box() as box:
        result = await shell(box, 'echo "${#1} ${#2} ${#V}"; cat', _LONG, _LONG, V=_LONG)
        require(result.stdout == "100000 100000 100000\n", result.stdout[:200] or result.stderr[:200])


@promise(
    "A missing program is exit code 127; one that a signal ends says so (negative, or 128 and more)",
    change="return what the kernel or the shell says instead of raising: scoring takes a failing program as data",
)
async def exit_codes(subject: Subject) -> None:
    async with subject.box() as box:
        missing = await box.run(["no-such-program"], {})
        require(missing.exit_code == 127, f"a missing program: {missing}")
        for signal in (9, 15):
            killed = await shell(box, f"kill -{signal} $$")
            require(killed.exit_code in (-signal, 128 + signal), f"signal {signal}: {killed}")
        require(await box.alive(), "the sandbox did not outlive a failing command")


@promise(
    "A command that prints 300 MB is kept in bounded memory of the host, its end included",
    change="keep the head and the tail of each stream, and read on so that the command can end",
)
async def output_without_end(subject: Subject) -> None:
    async with subject.box() as box:
        result = await shell(box, f"echo first; head -c {300 << 20} /dev/zero | tr '\\0' x; echo; echo last")
        require(result.exit_code == 0, f"exit code {result.exit_code}")
        require(len(result.stdout) <= 64 << 20, f"{len(result.stdout)} characters were kept")
        require(result.stdout.endswith("x\nlast\n"), f"it ends in {result.stdout[-40:]!r}")


@promise(
    "A command is over when its own process is, whoever keeps its output open",
    change="wait for the process, not for the end of its pipes",
)
async def output_kept_open(subject: Subject) -> None:
    seconds = unused_seconds()
    async with subject.box() as box:
        # The shell forks first; only then does the copy become the program.
        is_program = f"""[ "$(tr '\\0' ' ' </proc/$!/cmdline)" = "sleep {seconds} " ]"""
        result = await shell(box, f"sleep {seconds} & until {is_program}; do :; done; echo started")
        require(result.stdout == "started\n", result)
        require(await runs(box, f"sleep {seconds}"), "what it left in the background was ended with it")


@promise(
    "A background command writes its log, also one with a blank in its name, and runs on",
    change="start it in a session of its own with both streams in the file",
)
async def background(subject: Subject) -> None:
    seconds = unused_seconds()
    async with subject.box() as box:
        script = f'echo "$1 & $2"; echo err >&2; exec sleep {seconds}'
        await box.run_background(["sh", "-c", script, "x", "a'b", "c d"], {}, "my log")
        await until(partial(runs, box, f"sleep {seconds}"))
        log = await box.read("my log")
        require(log == b"a'b & c d\nerr\n", log)


@promise(
    "A cancelled command is dead when the cancellation goes on, and so is all that it started",
    change="find the whole tree from outside (a process namespace, a control group, a mark in the environment) and "
    "kill it before `run` raises CancelledError",
)
async def cancellation(subject: Subject) -> None:
    before, *numbers = (unused_seconds() for _ in range(4))
    async with subject.box() as box:
        await box.run_background(["sleep", before], {}, "log")
        script = "setsid sleep {} & (setsid sleep {} <&- >&- 2>&- &); sleep {}".format(*numbers)
        task = asyncio.ensure_future(shell(box, script))
        for number in (before, *numbers):
            await until(partial(runs, box, f"sleep {number}"))
        task.cancel()
        await asyncio.wait([task])
        require(task.cancelled(), "`run` did not raise CancelledError")
        left = [number for number in numbers if await runs(box, f"sleep {number}")]
        require(not left, f"{len(left)} of its {len(numbers)} processes live")
        require(await runs(box, f"sleep {before}"), "a process that another command started was ended, too")


@promise(
    "A command that is cancelled while it starts does not run on", change="shield the start, then end what it started"
)
async def cancellation_at_the_start(subject: Subject) -> None:
    seconds = unused_seconds()
    async with subject.box() as box:
        for turns, delay in (*((turns, 0.0) for turns in range(6)), *((1, delay) for delay in _DELAYS_S)):
            task = asyncio.ensure_future(box.run(["sleep", seconds], {}))
            for _ in range(turns):
                await asyncio.sleep(delay)
            task.cancel()
            await asyncio.wait([task])
            require(task.cancelled(), "`run` did not raise CancelledError")
        require(not await runs(box, f"sleep {seconds}"), "one of them lives")


@promise(
    "A command with a deadline that ignores SIGTERM is dead when its time is over",
    change="keep `timeout` and `kill` inside, and let a command see its own /proc",
)
async def deadlines(subject: Subject) -> None:
    seconds = unused_seconds()
    async with subject.box() as box:
        result = await run_command(box, f"trap '' TERM; setsid sleep {seconds} & wait", workdir="/tmp", timeout=1.0)
        require(result.timed_out, result.ending())
        require(not await runs(box, f"sleep {seconds}"), "what it started lives")


@promise(
    "A live process is talked to line by line, and killed with all that it started",
    change="give its streams as pipes, unbuffered, and end its tree in `kill`",
)
async def live_processes(subject: Subject) -> None:
    seconds = unused_seconds()
    async with subject.box() as box:
        if not starts_processes(box):
            raise NotAsked("it has no live processes")
        script = f"setsid sleep {seconds} & while read -r line; do echo got $line; done"
        process = await start_process(box, ["sh", "-c", script], {})
        output = aiter(process.stdout)
        for word in (b"one", b"two"):
            await process.write(word + b"\n")
            answer = await anext(output)
            require(answer == b"got %s\n" % word, answer)
        require(await process.poll() is None, "it is over before it was killed")
        await process.kill()
        require(await process.wait() in (-9, 137), f"its exit code is {await process.wait()}")
        require(not await runs(box, f"sleep {seconds}"), "what it started lives")


@promise(
    "What an agent left running ends at once, and a service from before it lives on",
    change="tell the agent's processes from earlier ones outside of the sandbox (`EndsAgentProcesses`)",
)
async def the_agents_end(subject: Subject) -> None:
    service, *numbers = (unused_seconds() for _ in range(3))
    async with subject.box() as box:
        if not isinstance(box, EndsAgentProcesses):
            raise NotAsked("it has no `mark_agent_start`: the harness marks and ends its agent by commands")
        await box.run_background(["sleep", service], {}, "log")
        await until(partial(runs, box, f"sleep {service}"))
        await box.mark_agent_start()
        await shell(box, "(setsid env -i sleep {} &); sleep {} &".format(*numbers))
        await box.end_agent_processes()
        left = [number for number in numbers if await runs(box, f"sleep {number}")]
        require(not left, f"{len(left)} of {len(numbers)} processes of the agent live")
        require(await runs(box, f"sleep {service}"), "the service was ended, too")


@promise(
    "Commands and files of another user are that user's",
    change="run the commands that read and write files as the user of the view (`with_user`)",
)
async def users(subject: Subject) -> None:
    async with subject.box() as box:
        if not supports_users(box):
            raise NotAsked("it runs everything as one user")
        other = box.with_user("nobody", "/tmp")
        said = await shell(other, "id -un; echo $HOME")
        require(said.stdout == "nobody\n/tmp\n", f"a command of `nobody`, whose home is /tmp: {said}")
        await other.write("/tmp/of-nobody/file", b"")
        owner = await shell(box, "stat -c %U /tmp/of-nobody/file")
        require(owner.stdout == "nobody\n", f"a file that `nobody` wrote: {owner}")
        await shell(box, "umask 077; echo secret >/tmp/closed")
        with contextlib.suppress(SandboxError):
            await other.read("/tmp/closed")
            raise Broken("`nobody` read a file that is closed to it")


@promise(
    "Removing a sandbox ends every process in it; it can be done twice, and nothing runs in it afterwards",
    change="wait in `stop` until the last process is gone, and raise a SandboxError from then on",
)
async def the_end_of_a_sandbox(subject: Subject) -> None:
    seconds = unused_seconds()
    async with subject.box() as box:
        await box.run_background(["sh", "-c", f"setsid sleep {seconds} & sleep {seconds}"], {}, "log")
        await until(partial(runs, box, f"sleep {seconds}"))
    left = host_pids_of(f"sleep\0{seconds}") if box.is_local else []
    require(not left, f"{len(left)} of its processes live on this machine")
    await backend_of(box).stop()
    with contextlib.suppress(SandboxError):
        result = await box.run(["true"], {})
        raise Broken(f"a command ran in it afterwards: {result}")


@promise("Many sandboxes start, work and end at once", change="share nothing among sandboxes that has a fixed name")
async def many_at_once(subject: Subject) -> None:
    async def one(number: int) -> str:
        async with subject.box() as box:
            await box.write("number", str(number).encode())
            return (await shell(box, "sleep 0.05; cat number")).stdout

    said = await asyncio.gather(*(one(number) for number in range(8)))
    require(said == [str(number) for number in range(8)], said)
