"""What a sandbox can do for whoever runs an agent in it: the one page to read before a runtime is written.

A runtime of your own is three methods, of which `rollout_sandbox.command_backend` makes the rest. This one is whole;
`podman` stands for the SDK of a service.

    import asyncio
    import subprocess
    from asyncio.subprocess import DEVNULL, PIPE, Process
    from collections.abc import AsyncIterator

    from rollout_sandbox.command_backend import CommandBackend, CommandBackendConfig

    class MyConfig(CommandBackendConfig):
        image: str = "python:3.11-slim"

    class MyProcess:
        def __init__(self, client: Process) -> None:
            self.client, self.wait = client, client.wait
            self.stdout, self.stderr = chunks(client.stdout), chunks(client.stderr)

        async def write(self, data: bytes) -> None:
            self.client.stdin.write(data)
            await self.client.stdin.drain()

    async def chunks(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
        while data := await stream.read(1 << 16):
            yield data

    class MyBackend(CommandBackend):
        config_class = MyConfig
        SUPPORTS_TASK_IMAGES = SUPPORTS_USER_SWITCHING = True

        async def create(self) -> None:  # root inside could block podman: it reads the accounts' files, even a pipe
            place = ["--user=daemon", f"--tmpfs={self.config.workdir}:mode=1777", "--entrypoint=sleep"]
            argv = ["podman", "run", "--detach", f"--name={self.name}", *place, self.config.image, "infinity"]
            await asyncio.to_thread(subprocess.run, argv, check=True, stdout=DEVNULL)

        def cleanup(self) -> None:
            subprocess.run(["podman", "rm", "--force", "--ignore", "--time=0", self.name], check=True, stdout=DEVNULL)

        async def open(self, argv: list[str], env: dict[str, str], user: str | None) -> MyProcess:
            options = [f"--env={name}={value}" for name, value in env.items()] + ([f"--user={user}"] if user else [])
            words = ["podman", "exec", "--interactive", *options, self.name, *argv]
            return MyProcess(await asyncio.create_subprocess_exec(*words, stdin=PIPE, stdout=PIPE, stderr=PIPE))

`create` has the sandbox. A start that is cancelled waits for it, so that `cleanup` knows what to remove. That removes
also half a sandbox, also twice, and needs no event loop, as the process may be ending; while there is one, a coroutine
`teardown` may do it.

`open` opens a process as `user` (None: the sandbox's own), with these variables beside the sandbox's, and returns its
streams of bytes, `write`, and `wait` for its exit code: -N or 128 + N for a signal, 127 for a program that is missing.
Inside there have to be `sh`, the usual small programs and `/proc`.

What the three raise reaches others as a `SandboxError`, unless it is an error of verifiers' already. `name` is unique:
the sandbox is created with it, so that it is found again where the answer to its creation was lost. Fields of the
configuration are the options. It has `workdir`, where commands start: `start` makes it, and the environment fills it in
(the user's choice, else the task's, else `/app`). So are `image`, `cpu`, `memory`, `gpu` and `disk` where there are
such fields. Class attributes say what it takes of a task: `SUPPORTS_TASK_IMAGES` (then there are `image` and
`workdir`), `SUPPORTS_USER_SWITCHING` (else `user` is None), `SUPPORTS_PORT_EXPOSURE`. `is_local` stays False unless it
is on this machine and reaches its loopback by what `host_url` returns: verifiers leads a tunnel to any other.

`python -m rollout_sandbox.conformance my_package.MyBackend` checks it: each method, and each ability it has. A limit is
tested where there is the option: `max_memory` (bytes) or `memory` (GB), `max_processes`, `max_disk` (bytes); the
network and what is left on this machine, only where it `is_local`. Its user gives `--env.agent.runtime.type custom` and
`--env.agent.runtime.import-path my_package.MyBackend`, under verifiers from 0.4.1.dev86 on: 0.4.0 has no such type.

What a service does better than those programs, you write yourself: any of these methods in a `CommandBackend`, or all
to `write` in a `RuntimeBackend` (of `rollout_sandbox.compat`, where everything of verifiers has its later name).

    start(), teardown(), cleanup()      of the last two one, which leaves nothing; then all others raise `SandboxError`
    run(runtime, argv, env)             a command to its end, though its children hold its output, of which the end is
                                        kept in bounded memory; cancelled, also early, all it started is dead first
    exec(runtime, argv, env)            verifiers' `RuntimeProcess`; `terminate` and `kill` reach all that it started
    run_background(runtime, argv, env, log)    a process that nobody waits for, its output in the file `log` inside
    read(runtime, path, max_bytes=None), write(runtime, path, data)    bytes of regular files, resolved inside; nothing
                                        that blocks is waited for; of a longer file `max_bytes` are given
    host_url(url)                       opens the way to one address of the host, and returns it as it is inside
    expose(port)                        the way from the host to one port inside
    prepare_execution(routes, network=None)    takes the network that the agent must not have; with None, gives it back

All but `cleanup` and `host_url` are coroutines. `runtime` is the view through which it was asked for:
`runtime.process_env(env)` are a command's variables, `runtime.user` is who runs it. The network's policy is tested
where the configuration is a `verifiers.v1.configs.runtime.NetworkPolicyConfig`, too.

A view can do more where its class inherits from `SandboxAbilities`, all of which are optional: what each stands for as
it is written here is a sandbox that has it not, and whoever asks for it says what is done then. `abilities_of`
(`rollout_sandbox.compat`) gives those of any runtime: verifiers' own inherit nothing of ours.

    class MyView(SandboxAbilities, Runtime):
        async def limit_kills(self) -> dict[str, int]: ...

    class MyBackend(CommandBackend):
        def bind(self, *, env: Mapping[str, str] | None = None) -> MyView:
            return MyView(self, env=self.env if env is None else env)
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime

NOT_REACHED = "not reached"
"""The status of a program for which no time was left."""
COMMAND = "run-agent-code"
"""What the command for verify commands is called."""


@dataclass(frozen=True)
class ProgramLimits:
    """Holds what each program of an `AgentPrograms` is bound to."""

    seconds: float
    """Wall-clock seconds of one program."""
    total_seconds: float
    """Seconds of all of them; the others are not run."""
    memory_bytes: int
    processes: int
    """Processes and threads at once."""
    output_bytes: int
    """The most that is read of each stream; a program that prints more is ended."""


@dataclass(frozen=True)
class ProgramBatch:
    """One program, to be run once for each of `inputs`."""

    argv: Sequence[str]
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Content by name, in the directory where the program starts; all can be executed."""
    inputs: Sequence[str] = ("",)
    kept: str = ""
    """Name of a file that the program makes, to be taken out."""


@dataclass(frozen=True)
class ProgramEnd:
    """Holds what one program did."""

    status: str
    """`exit N`, `signal N`, `timeout`, or `NOT_REACHED`."""
    out: str = ""
    err: str = ""
    kept: bytes | None = None
    """The file that was to be kept; None if the program made none."""


class AgentPrograms(Protocol):
    """A place where programs run one after another, each as if it were the first.

    A program gets its own files and its standard input and nothing else: no network, nothing of the agent's sandbox,
    and nothing that a program before it left. What it printed is taken from it by its host, so it can say nothing for
    another program. A program that cannot be run is an error, and never a result.
    """

    async def run(self, batch: ProgramBatch, limits: ProgramLimits) -> list[ProgramEnd]:
        """Return what the program did with each input, in order."""
        ...


class AgentCode(Protocol):
    """The command `run-agent-code`, while verify commands can use it.

    A program that it runs shares no process namespace or user with the verify commands, inherits none of their
    descriptors, and what it does is data to them.
    """

    tools: str
    """Directory in the sandbox that holds the command, for the front of `PATH`."""
    shared: str
    """Directory in the sandbox that verify commands and the programs can both write, empty at first."""
    scratch: str
    """Directory in the sandbox that the programs do not see."""
    failure: str | None
    """Why a program could not be run; that is never the program's own doing."""


@dataclass
class KeptFiles:
    """Holds what was kept of a sandbox's files."""

    bytes: int = 0
    """Of all contents."""
    new_bytes: int = 0
    """Of those that are not a hard link."""


class SandboxAbilities:
    """Lists what a view of a sandbox can do beyond a verifiers runtime. As it stands here: nothing."""

    # The agent's processes.

    can_end_agent: ClassVar[bool] = False
    """Whether the sandbox tells the agent's processes from others from outside (the two methods below).

    False: two shell scripts in the sandbox do it by exclusion, and an agent that is root there can have undermined
    them. Asked by the fence around each run of an agent (`opencode_env.cli_agent.process_fence`), and by rubrics.
    """

    async def mark_agent_start(self) -> None:
        """Remember the processes that run now: they are not the agent's."""
        raise NotImplementedError

    async def end_agent_processes(self) -> None:
        """Kill every process that is the agent's; none is left on return, and what ran at the mark lives on.

        Raises:
            SandboxError: it could not be done.
        """
        raise NotImplementedError

    def agents_view(self) -> Runtime | None:
        """The view through which the agent's programs have to be started, for a sandbox that has to be told.

        None: they start as any command. Asked by harnesses as they start the agent.
        """
        return None

    @property
    def agent_survived(self) -> bool | None:
        """Whether the agent's processes outran their end, so that everything was ended with them.

        None: it is not known. Asked after the agent's end; a rollout in which they did is a reward of 0.
        """
        return None

    async def limit_kills(self) -> dict[str, int]:
        """Return how many processes were ended at a limit of the sandbox's own, by limit: `memory`, `disk`.

        Empty: nothing is known of any. Asked after the agent's end, for the metric of that name.
        """
        return {}

    def kills_below_limits(self) -> int:
        """Return how many processes the kernel ended for want of memory though the sandbox was below its limit.

        0 also where that is not known. Asked where the agent's program was killed: such an end is an error, not data.
        """
        return 0

    def agent_can_cause(self, error: SandboxError) -> bool:
        """Whether programs inside can have made a command fail so.

        True also where that is not known. Asked of failures in scoring, which are a reward of 0 where the agent can
        have caused them.
        """
        return True

    # What scoring relies on.

    @property
    def trusted_python(self) -> str | None:
        """Absolute path inside of a Python with its whole standard library, where no program can be replaced.

        None: the agent is taken to be root, and to have replaced any program. Asked by every rubric that runs something
        in the agent's sandbox.
        """
        return None

    def others_held(self) -> AbstractAsyncContextManager[Runtime] | None:
        """A view of the sandbox that is alone in it while the context lasts: whatever else runs is held still.

        None: it cannot be had, and commands that hold a secret run beside what `setup` started. Asked by
        `remote-hybrid-math`, whose scorer is told the reference.
        """
        return None

    async def read_answer(self, path: str, max_bytes: int) -> bytes | str | None:
        """Return what the regular file at an absolute path holds, read by no program that an agent could have replaced.

        A text says why there is nothing to be had: the name of a `FileState` in lower case. None: a program inside
        reads it. Asked for every file of the agent's (`toolbox.bounded_file`).
        """
        return None

    def agent_programs(self, limits: ProgramLimits) -> AbstractAsyncContextManager[AgentPrograms] | None:
        """A place for programs of the agent's, apart from what it left in this sandbox.

        None: a second sandbox of the rollout is asked for. Asked by `code-tests`.
        """
        return None

    def agent_code(self) -> AbstractAsyncContextManager[AgentCode] | None:
        """The command `run-agent-code`, for verify commands, when the agent has ended.

        None: `run_agent_code.sh` does what the sandbox allows. Asked by whatever runs verify commands
        (`toolbox.scoring_home`).
        """
        return None

    # Its files as a whole.

    can_keep_files: ClassVar[bool] = False
    """Whether its files can be kept and put into another one of its kind (the two methods below).

    False: no turn of the rollout is kept. Asked where turns are to be kept (`opencode_env.kept_turns`).
    """

    async def keep_files(self, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
        """Keep them in a folder (see `toolbox.kept_files.keep`), and say for how many seconds everything was held.

        Raises:
            NotKept: they cannot be kept whole.
        """
        raise NotImplementedError

    async def put_files(self, folder: Path) -> None:
        """Make what such a folder holds, in a sandbox in which nothing has run yet."""
        raise NotImplementedError

    # Where it is.

    @property
    def is_this_machine(self) -> bool:
        """Whether programs run on this machine without confinement, among its files.

        Asked before anything is staged, replaced or removed at a fixed path.
        """
        return False

    @property
    def container(self) -> tuple[str, str] | None:
        """The engine (`docker` or `podman`) and the id of a container on this machine.

        None: there is no engine to ask. Asked whether the container lives, and for files that a program inside cannot
        be trusted to read (`toolbox.checked_run`).
        """
        return None
