"""A runtime of one's own in three methods: how a sandbox is had, how it is removed, how a process in it is opened.

All else is done by what `open` opens: programs of `sh` run the commands, carry the files, and end what a command
started, which has a mark in its environment. `rollout_sandbox.interface` has a whole sample.
"""

import uuid
from abc import ABC, abstractmethod
from functools import partial
from typing import Any, ClassVar

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.command_process import CommandProcess, CommandProcesses, MarkedProcess
from rollout_sandbox.compat import CustomRuntimeConfig, CustomRuntimeInfo, Runtime, RuntimeBackend
from rollout_sandbox.exchange import OUTPUT_BYTES, PRINTED_BYTES, command_end, exchange, read_file, write_file
from rollout_sandbox.programs import program_argv
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR

_IN_WORKDIR = 'cd -- "$1" 2>/dev/null || mkdir -p -- "$1" && cd -- "$1" || exit 125; shift; exec "$@"'
_AND_CLEAN = '"$@"; code=$?; rm -rf -- "$0" "/dev/shm/${0##*/}"; exit $code'
_BACKGROUND = 'exec 3>"$1" || exit; shift; "$@" >&3 2>&3 3>&- </dev/null &'
_KILLED = 137


class CommandBackendConfig(CustomRuntimeConfig):
    """The options that all such runtimes have; those of yours are fields of a subclass."""

    import_path: str = ""
    """What makes it; filled in by the backend."""
    workdir: str | None = None
    """Work directory, an absolute path; None uses the task's, or /app. Made when there is none."""


class CommandBackend(RuntimeBackend, ABC):
    """One sandbox; a subclass writes `create`, `open` and `cleanup`. What these raise becomes a `SandboxError`."""

    config_class: ClassVar[type[CommandBackendConfig]] = CommandBackendConfig

    def __init__(self, config: CommandBackendConfig, name: str | None = None) -> None:
        super().__init__(name)
        path = config.import_path or f"{type(self).__module__}.{type(self).__qualname__}"
        settled = {"import_path": path, "workdir": config.workdir or DEFAULT_WORKDIR}
        self.config: Any = config.model_copy(update=settled)
        self.info: Any = CustomRuntimeInfo(**self.config.model_dump())
        self._processes = CommandProcesses(self.name, self.open)
        self._started = False

    @abstractmethod
    async def create(self) -> None:
        """Have the sandbox. Who is cancelled waits for it all the same, so that `cleanup` knows what to remove."""

    @abstractmethod
    async def open(self, argv: list[str], env: dict[str, str], user: str | None) -> CommandProcess:
        """Open a process with these variables beside the sandbox's own, as `user`; None is the sandbox's own user."""

    async def start(self) -> None:
        with self._processes.failing():
            await run_shielded(self.create())
        self._started = True
        first = await self.run(self.bind(), ["true"], {})
        if first.exit_code != 0:
            raise SandboxError(f"sandbox {self.name} runs no command in {self.config.workdir}: {first.stderr.strip()}")

    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> MarkedProcess:
        return await self._open(runtime.user, argv, runtime.process_env(env))

    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a command to its end, whoever holds its output then; of that the end is kept. Cancelled, all that it
        started is dead first."""
        directory = f"/tmp/.vf-run-{uuid.uuid4().hex}"
        words = program_argv("remote_run.sh", directory, str(OUTPUT_BYTES), *argv)
        process = await self.exec(runtime, ["sh", "-c", _AND_CLEAN, directory, *words], env)
        code, printed, stderr = await exchange(process, b"", PRINTED_BYTES)
        try:
            return command_end(printed)
        except ValueError as error:  # somebody inside ended the shell around the command
            await process.kill()  # a `SandboxError` if it is the sandbox that is gone
            return ProgramResult(code or _KILLED, "", f"{stderr or error}\n")

    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        done = await self.run(runtime, ["sh", "-c", _BACKGROUND, "background", log, *argv], env)
        if done.exit_code != 0:
            raise SandboxError(f"{argv[0]!r} could not be started in the background: {done.stderr.strip()[-500:]}")

    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        return await read_file(partial(self._ask, runtime.user), path, max_bytes)

    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
        await write_file(partial(self._ask, runtime.user), path, data)

    async def _ask(self, user: str | None, argv: list[str], data: bytes, limit: int) -> tuple[int, bytes, str]:
        return await exchange(await self._open(user, argv, {}), data, limit)

    async def _open(self, user: str | None, argv: list[str], env: dict[str, str]) -> MarkedProcess:
        """Open a process in the work directory."""
        if self.stopped or not self._started:
            raise SandboxError(f"sandbox {self.name} is {'stopped' if self.stopped else 'not started'}")
        words = ["sh", "-c", _IN_WORKDIR, "in-workdir", self.config.workdir, *argv]
        return await self._processes.open(words, env, user)
