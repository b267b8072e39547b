"""The verifiers runtime of the confined local sandbox: its backend, and the views through which programs use it.

Every command, file and connection of a rollout goes through process 1 of its one sandbox.
"""

import asyncio
import contextlib
import copy
import dataclasses
import json
import os
import re
import sys
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError, TaskError
from verifiers.v1.runtimes import ProgramResult, SubprocessConfig, SubprocessRuntimeInfo
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.compat import CustomRuntimeConfig, CustomRuntimeInfo, Runtime, RuntimeBackend
from rollout_sandbox.confined.agent_code import SHARED, AgentCodeServer, ConfinedPrograms, shown_areas
from rollout_sandbox.confined.bubblewrap import require_private_workdir
from rollout_sandbox.confined.channel import Channel, read_answer, read_file, write_file
from rollout_sandbox.confined.config import Bind, LocalSandboxConfig
from rollout_sandbox.confined.directory import HOME
from rollout_sandbox.confined.interpreter import base_python
from rollout_sandbox.confined.limits import DiskWatch, kills_of_machine
from rollout_sandbox.confined.network import NetworkRelays
from rollout_sandbox.confined.process import ConfinedProcess, PipeReader, pipes
from rollout_sandbox.confined.sandbox import Sandbox
from rollout_sandbox.confined.users import SandboxUser
from rollout_sandbox.confined.uv_scripts import prepare_script
from rollout_sandbox.errors import NotKept
from rollout_sandbox.interface import KeptFiles, ProgramLimits, SandboxAbilities
from rollout_sandbox.programs import program_text
from rollout_sandbox.provisioning import provisioned
from rollout_sandbox.toolbox.kept_files import keep, put
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR

_END_TIMEOUT_S = 60.0
_SYSTEM_PATH = ("/usr/local/bin", "/usr/bin", "/bin", "/usr/local/sbin", "/usr/sbin", "/sbin")


def _base_environment(allow: Iterable[str]) -> dict[str, str]:
    """Return what every program sees: of the host's environment language, time zone and what the user names."""
    path = list(_SYSTEM_PATH)
    if not any(os.access(f"{directory}/python3", os.X_OK) for directory in path):
        path.append(f"{sys.base_prefix}/bin")
    shell = "/bin/bash" if os.path.exists("/bin/bash") else "/bin/sh"
    own = {"PATH": ":".join(path), "HOME": HOME, "USER": "agent", "LOGNAME": "agent", "SHELL": shell, "LANG": "C.UTF-8"}
    let_in = {"LANG", "LANGUAGE", "TZ", *allow}
    return own | {name: value for name, value in os.environ.items() if name in let_in or name.startswith("LC_")}


class ConfinedCommands:
    """Starts programs through process 1; `env_allow` names host variables that they see."""

    def __init__(self, sandbox: Sandbox, env_allow: list[str]) -> None:
        self._sandbox = sandbox
        self._environment = _base_environment(env_allow)
        self._processes: list[ConfinedProcess] = []
        self._holding = asyncio.Lock()
        self._alone = False
        """Whether these are the commands of whoever holds the sandbox's other processes still."""

    def _request(self, argv: list[str], env: Mapping[str, str], log: str = "") -> list[str]:
        settings = [f"{name}={value}" for name, value in {**self._environment, **env}.items()]
        return ["spawn", "alone" if self._alone else "", log, str(len(argv)), *argv, *settings]

    async def _free_channel(self) -> Channel:
        """The channel to process 1, once nobody else holds this sandbox's processes."""
        channel = self._sandbox.channel
        if not self._alone:
            async with self._holding:
                pass
        return channel

    @contextlib.asynccontextmanager
    async def others_held(self, *, spare: bool = False) -> AsyncIterator["ConfinedCommands"]:
        """Hold still whatever runs; only commands that are started through what this yields run meanwhile.

        Where that cannot be had for sure although the kernel could do it, what runs is ended instead; with `spare` that
        is a `NotKept`."""
        async with self._holding:
            channel, group = self._sandbox.channel, self._sandbox.limits.group
            try:
                running = int((await channel.request("hold")).text)
                if running and group is not None and group.can_freeze and not await asyncio.to_thread(group.freeze):
                    if spare:
                        raise NotKept("what ran in the sandbox could not be held still")
                    group.thaw()
                    await self.end("end_everything")
                alone = copy.copy(self)
                alone._alone = True
                yield alone
            finally:
                await run_shielded(self._release())

    async def _release(self) -> None:
        if self._sandbox.limits.group is not None:
            self._sandbox.limits.group.thaw()
        with contextlib.suppress(SandboxError):  # gone, which the next command says
            await self._sandbox.channel.request("release")

    async def run(self, argv: list[str], env: Mapping[str, str]) -> ProgramResult:
        """Run a command to its end; cancelling ends its whole tree before the cancellation goes on."""
        channel = await self._free_channel()
        (out, out_inside), (err, err_inside) = pipes(2)
        readers = PipeReader(out), PipeReader(err)
        try:
            command, exited = channel.submit(*self._request(argv, env), fds=(out_inside, err_inside))
            try:
                code = int((await exited).text)
            except asyncio.CancelledError:
                # Gone already, or ended as a whole just now: nothing of the command is left then.
                with contextlib.suppress(SandboxError):
                    await run_shielded(self.end("end", command))
                raise
            stdout, stderr = (reader.finish() for reader in readers)
            return ProgramResult(code, stdout, stderr)
        finally:
            for reader in readers:
                reader.close()

    async def open(self, argv: list[str], env: Mapping[str, str]) -> ConfinedProcess:
        process = ConfinedProcess(await self._free_channel(), *self._request(argv, env))
        self._processes.append(process)
        return process

    async def background(self, argv: list[str], env: Mapping[str, str], log: str) -> None:
        (await self._free_channel()).submit(*self._request(argv, env, log))

    async def relieve(self, commands_too: bool) -> int:
        """Kill what the running commands have started, or them as well; returns how many processes that were.

        None while the others are held: they add nothing, and whoever runs alone is not to pay for what they left.
        """
        if self._holding.locked():
            return 0
        return int((await self._sandbox.channel.request("relieve", "all" if commands_too else "")).text)

    async def end(self, kind: str, *fields: str) -> None:
        """Have process 1 end processes; a sandbox that cannot is ended as a whole."""
        try:
            async with asyncio.timeout(_END_TIMEOUT_S):
                reply = await self._sandbox.channel.request(kind, *fields)
                self._sandbox.outlived |= reply.text == "outlived"
        except (SandboxError, TimeoutError) as error:
            self._sandbox.close_channel()
            await run_shielded(asyncio.to_thread(self._sandbox.kill))
            raise SandboxError(f"processes in sandbox {self._sandbox.name} could not be ended: {error}") from error

    def close(self) -> None:
        for process in self._processes:
            process.close()


_PORT_FILE = "MCP_PORT_FILE"
"""The variable that names the file in which a tool server says its port; only tool servers have it."""
_PORT_INSIDE = "/run/tool-server-port"
_STATE_URL = "VF_STATE_URL"
_OWN_IMPORTS = ("-P", "-s")
"""Options of Python's: nothing is imported from the directory that it starts in, nor from the user's site."""
_PORT_TIMEOUT_S = 120.0
_ACTIVATE = 'export VIRTUAL_ENV="$1" PATH="$1/bin:$PATH"; shift; exec "$@"'


class BubblewrapBackend(RuntimeBackend):
    """One bubblewrap sandbox, from `start` to `stop`, which shows `binds` read-only.

    Commands run as uid 1000 without capabilities, in `workdir`, each in a session of its own. Exit codes are those of
    `asyncio.subprocess` (negative for a signal); 127 and 126 mean a program that is missing or not executable.

    Args:
        name: for messages and the host directory; a rollout's id. Random by default.
        lent: the host user of another living sandbox (`host_user`), for one that shows that sandbox's files.
    """

    is_local = True

    def __init__(
        self,
        options: LocalSandboxConfig,
        binds: Sequence[Bind] = (),
        name: str | None = None,
        workdir: str = DEFAULT_WORKDIR,
        lent: SandboxUser | None = None,
    ) -> None:
        super().__init__(name)
        self.config: Any = SubprocessConfig()
        self.info: Any = SubprocessRuntimeInfo()
        self.options = options
        self.binds = tuple(binds)
        self.workdir = workdir
        self.sandbox = Sandbox(self.name, options, workdir, lent)
        self.commands = ConfinedCommands(self.sandbox, options.env_allow)
        self.disk: DiskWatch | None = None
        self.relays = NetworkRelays(lambda: self.sandbox.channel, lambda: self.sandbox.directory.hosts)
        self._disk_task: asyncio.Task[None] | None = None
        self.killed_before = 0
        self._tool_servers: list[BubblewrapBackend] = []
        self._apart = contextlib.AsyncExitStack()

    def bind(self, *, env: Mapping[str, str] | None = None) -> "ConfinedRuntime":
        return ConfinedRuntime(self, env=self.env if env is None else env)

    async def start(self) -> None:
        """Start the sandbox (about 20 ms)."""
        self.killed_before = kills_of_machine()
        temporary = ".vf-" + re.sub(r"[^A-Za-z0-9_-]", "-", self.name)
        await self.sandbox.start(self.binds, temporary)
        self.info.id = f"/tmp/{temporary}"
        if self.options.max_disk is not None:
            place = self.sandbox.directory.path
            self.disk = DiskWatch(place, self.sandbox.pid, self.options.max_disk, self.commands.relieve)
            self._disk_task = asyncio.create_task(self.disk.run())  # fails when the sandbox or its directory is gone

    async def teardown(self) -> None:
        try:
            await self._apart.aclose()
            if self._disk_task is not None:
                self._disk_task.cancel()
                await asyncio.gather(self._disk_task, return_exceptions=True)
            await self.relays.close()
            self.commands.close()
        finally:
            self.sandbox.close_channel()
            await super().teardown()

    def cleanup(self) -> None:
        for apart in self._tool_servers:
            apart.cleanup()
        self.sandbox.kill()

    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run as verifiers' own does; what it leaves running is not waited for, and its output is closed."""
        return await self.commands.run(argv, runtime.process_env(env))

    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ConfinedProcess:
        return await self.commands.open(argv, runtime.process_env(env))

    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        """Run as verifiers' own does, with the output in `log` inside; a tool server gets a sandbox of its own."""
        if argv[0] == sys.executable and not self.options.python_env:
            raise SandboxError(
                f"{' '.join(argv[:3])} needs the evaluation's Python environment inside the sandbox: "
                "set --env.sandbox.python_env true, or give the tool server a runtime of its own (colocated = false)"
            )
        if _PORT_FILE not in env:
            await self.commands.background(argv, runtime.process_env(env), log)
            return
        # Their links are there; a bubblewrap before 0.12 would follow what an agent has put in the place of a parent.
        without_links = (dataclasses.replace(bind, links=()) for bind in self.binds)
        binds = (*without_links, *self.sandbox.shown_to_tool_servers())
        user = self.sandbox.limits.user
        server = BubblewrapBackend(self.options, binds, f"{self.name}-tools", self.workdir, lent=user)
        self._tool_servers.append(server)
        apart = await self._apart.enter_async_context(provisioned(server))
        await _serve_apart(self.bind(), apart, argv, runtime.process_env(env), log)

    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        return await read_file(self.sandbox.channel, path, max_bytes)

    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
        """Replace the file at `path`, not what a symlink there points to, with mode 0644; make its parents."""
        await write_file(self.sandbox.channel, path, data)

    def host_url(self, url: str) -> str:
        return url if self.options.network == "host" else self.relays.inward(url)

    async def expose(self, port: int) -> str:
        return f"http://127.0.0.1:{port}" if self.options.network == "host" else self.relays.outward(port)


class ConfinedRuntime(SandboxAbilities, Runtime):
    """A view of a confined sandbox."""

    backend: BubblewrapBackend
    can_end_agent = True
    can_keep_files = True

    @property
    def host_user(self) -> SandboxUser | None:
        """The host user id that the sandbox has for itself, once started; None when it shares the evaluation's."""
        return self.backend.sandbox.limits.user

    @property
    def trusted_python(self) -> str:
        return base_python()

    async def alive(self) -> bool:
        """Whether process 1 lives, told outside: a command inside can be kept from starting by what runs there."""
        return self.backend.sandbox.is_alive

    async def limit_kills(self) -> dict[str, int]:
        group, disk = self.backend.sandbox.limits.group, self.backend.disk
        watched = int((await self.backend.sandbox.channel.request("kills")).text)
        by_kernel = 0 if group is None else group.memory_kills().at_limit
        return {"memory": watched + by_kernel, "disk": 0 if disk is None else disk.kills}

    def kills_below_limits(self) -> int:
        """Return how many there were; without a control group, of the whole machine since the sandbox started."""
        group = self.backend.sandbox.limits.group
        if group is not None and group.limits_memory:
            return group.memory_kills().below_limit
        return kills_of_machine() - self.backend.killed_before

    async def exec(self, argv: list[str], env: dict[str, str]) -> ConfinedProcess:
        return await self.backend.exec(self, argv, env)

    def original_url(self, url: str) -> str:
        """Return the URL that `host_url` has made this one of."""
        return self.backend.relays.outside(url)

    async def start_background(self, argv: list[str], env: dict[str, str], log: str) -> None:
        await self.backend.commands.background(argv, self.process_env(env), log)

    async def mark_agent_start(self) -> None:
        await self.backend.sandbox.channel.request("mark")

    async def end_agent_processes(self) -> None:
        """Kill every process but those that ran at the mark and their descendants. Those that outrun it take with them
        what would have been spared (`agent_survived`); where it cannot be done, the whole sandbox is ended."""
        await self.backend.commands.end("purge")

    @contextlib.asynccontextmanager
    async def agent_code(self) -> AsyncIterator[AgentCodeServer]:
        sandbox = self.backend.sandbox
        async with AgentCodeServer(self._cell, self.backend.workdir).open(*sandbox.agent_code_directories()) as server:
            with sandbox.home_unnamed():
                yield server

    def _cell(self) -> AbstractAsyncContextManager["ConfinedRuntime"]:
        """A sandbox for one program of the agent's, without a network and with nothing of this one's processes."""
        options = self.backend.options.model_copy(update={"network": "interception", "python_env": False})
        shown = shown_areas(self.backend.sandbox.directory.areas(self.backend.workdir), self.backend.workdir)
        place = "/tmp"  # which no program before it can have closed
        return provisioned(BubblewrapBackend(options, shown, f"{self.name}-code", place, lent=self.host_user))

    def agent_programs(self, limits: ProgramLimits) -> AbstractAsyncContextManager[ConfinedPrograms]:
        bounds = {"max_processes": limits.processes, "max_memory": limits.memory_bytes}
        apart = {"network": "interception", "python_env": False, "env_allow": []}
        options, name = self.backend.options.model_copy(update=apart | bounds), f"{self.name}-code"
        return contextlib.aclosing(ConfinedPrograms(lambda: provision_confined(options, name=name, workdir="/tmp")))

    def empty(self) -> None:
        """Make all that is writable as it was at first, when nothing runs inside any more (blocking)."""
        self.backend.sandbox.directory.empty()

    @property
    def agent_survived(self) -> bool:
        return self.backend.sandbox.outlived

    @contextlib.asynccontextmanager
    async def others_held(self) -> AsyncIterator["ConfinedRuntime"]:
        """Other commands start after it. The kernel's freezer holds them where the evaluation may make control groups;
        elsewhere a signal does, from which a process can arrange to be woken."""
        alone = copy.copy(self.backend)
        async with self.backend.commands.others_held() as alone.commands:
            yield alone.bind(env=self.env)

    async def keep_files(self, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
        roots, skipped = self.backend.sandbox.kept_areas(), [str(self.info.id), SHARED]
        async with self.backend.commands.others_held(spare=True) as alone:
            begun = time.monotonic()
            async with self._program(alone, "list_and_send.py", roots, skipped) as process:
                kept = await keep(process, folder, before, most)
            return kept, time.monotonic() - begun

    async def put_files(self, folder: Path) -> None:
        async with self._program(self.backend.commands, "put_files.py") as process:
            await put(process, folder)

    @contextlib.asynccontextmanager
    async def _program(
        self, commands: ConfinedCommands, name: str, *operands: list[str]
    ) -> AsyncIterator[ConfinedProcess]:
        argv = [self.trusted_python, "-I", "-S", "-c", program_text(name), *map(json.dumps, operands)]
        with contextlib.closing(await commands.open(argv, {})) as process:
            try:
                yield process
            finally:
                await run_shielded(process.kill())

    async def read_answer(self, path: str, max_bytes: int) -> bytes | str:
        return await read_answer(self.backend.sandbox.channel, path, max_bytes)

    async def prepare_uv_script(
        self, script: str | bytes, env: dict[str, str] | None = None, *, activate: bool = True
    ) -> list[str]:
        """Prepare a trusted PEP 723 script on the host, with uv, and return an argv that runs it inside."""
        data = script.encode() if isinstance(script, str) else script
        interpreter, path = await prepare_script(data, env or {})
        if not activate:
            return [interpreter, path]
        venv = os.path.dirname(os.path.dirname(interpreter))
        return ["sh", "-c", _ACTIVATE, "uv-script", venv, interpreter, path]


async def _serve_apart(
    front: ConfinedRuntime, apart: ConfinedRuntime, argv: list[str], env: dict[str, str], log: str
) -> None:
    """Run a tool server in the started sandbox `apart`, over the same files, and say in `front`, the agent's, at which
    port it is reached there. The agent sees nothing of its processes: not its environment, which holds the way to the
    rollout's state, nor its memory."""
    settings = {**env, _PORT_FILE: _PORT_INSIDE}
    if env.get(_STATE_URL):
        settings[_STATE_URL] = apart.host_url(front.original_url(env[_STATE_URL]))
    options = _OWN_IMPORTS if argv[0] == sys.executable else ()  # not by the environment, which its programs inherit
    await apart.start_background([argv[0], *options, *argv[1:]], settings, log)
    url = front.host_url(await apart.expose(await _port(apart, log)))
    await front.write(env[_PORT_FILE], url.rpartition(":")[2].encode())


async def _port(apart: ConfinedRuntime, log: str) -> int:
    try:
        async with asyncio.timeout(_PORT_TIMEOUT_S):
            while True:
                with contextlib.suppress(SandboxError, ValueError):
                    return int(await apart.read(_PORT_INSIDE))
                await asyncio.sleep(0.05)
    except TimeoutError:
        tail = await apart.run(["tail", "-c", "2000", log], {})
        raise SandboxError(f"the tool server did not say its port: {tail.stdout.strip()}") from None


def provision_confined(
    options: LocalSandboxConfig,
    binds: Sequence[Bind] = (),
    name: str | None = None,
    env: Mapping[str, str] | None = None,
    workdir: str = DEFAULT_WORKDIR,
) -> AbstractAsyncContextManager[ConfinedRuntime]:
    """Start a local sandbox and end it on exit, whatever happens; arguments as of `BubblewrapBackend`."""
    return provisioned(BubblewrapBackend(options, binds, name, workdir), env)


class ConfinedConfig(LocalSandboxConfig, CustomRuntimeConfig, NetworkPolicyConfig):
    """The confined local sandbox, with the options of `LocalSandboxConfig`."""

    import_path: str = "rollout_sandbox.ConfinedBackend"
    """What makes it."""
    workdir: str = Field(DEFAULT_WORKDIR, pattern="^/")
    """Work directory; made when the sandbox starts."""

    @model_validator(mode="after")
    def _what_it_can_be(self) -> Self:
        if not self.confine:
            raise ValueError("confine false is not a sandbox: use the runtime type subprocess")
        if self.network_restricted and (self.allow or self.network == "host"):
            raise ValueError(
                "the confined sandbox reaches its rollout's own endpoints and nothing else: use allow = [] with "
                "network = 'interception', or the docker or prime runtime"
            )
        return self


class ConfinedBackend(BubblewrapBackend):
    """The confined sandbox, named by its path; a `TaskError` if it cannot have a task's work directory or hosts."""

    SUPPORTS_PORT_EXPOSURE = True
    config_class = ConfinedConfig

    def __init__(self, config: ConfinedConfig, name: str | None = None) -> None:
        if config.network_restricted and config.allow:
            raise TaskError(f"the confined sandbox has no way to the hosts that the task names ({config.allow})")
        require_private_workdir(config.workdir)
        super().__init__(config, name=name, workdir=config.workdir)
        self.config = config
        self.info = CustomRuntimeInfo(**config.model_dump())
