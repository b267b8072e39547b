"""The verifiers runtime of a podman container that we start and remove ourselves, with one call of podman each.

What else a runtime does, a process of ours that stands outside the container does (its supervisor), or `podman exec`. A
container whose policy allows nothing has no interface but its loopback while the agent runs, so that only the endpoints
that were handed to `host_url` can be reached, and those through sockets that the supervisor made.

Of what stands under the image's names `sh`, `head` and `cat`, the host takes no more than it asked for. While files are
kept everything inside is paused; the programs that read and write them run none of the container's code.
"""

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import TypeIs
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult, RuntimeConfig, RuntimeProcess
from verifiers.v1.utils.aio import run_shielded

from rollout_sandbox.compat import AFTER_0_4_0, Runtime, RuntimeBackend
from rollout_sandbox.confined import Bind
from rollout_sandbox.confined.channel import read_answer
from rollout_sandbox.confined.network import NetworkRelays, is_own_machine
from rollout_sandbox.confined.process import ConfinedProcess, PipedProcess, pipes
from rollout_sandbox.confined.supervisor.processes import COMMAND_VARIABLE
from rollout_sandbox.errors import NotKept
from rollout_sandbox.exchange import exchange, read_file, write_file
from rollout_sandbox.interface import KeptFiles, SandboxAbilities
from rollout_sandbox.podman import engine
from rollout_sandbox.podman.container import Container, ContainerOptions
from rollout_sandbox.programs import program_text
from rollout_sandbox.provisioning import provisioned
from rollout_sandbox.toolbox.kept_files import keep, put
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR

if AFTER_0_4_0:
    from typing import Self

    from pydantic import model_validator
    from verifiers.v1.configs.runtime import CustomRuntimeConfig, NetworkPolicyConfig
    from verifiers.v1.runtimes import CustomRuntimeInfo

    PodmanRuntimeInfo = CustomRuntimeInfo

    class PodmanConfig(CustomRuntimeConfig, NetworkPolicyConfig):
        """A podman container on this machine."""

        import_path: str = "rollout_sandbox.PodmanBackend"
        """What makes it."""
        image: str = "docker.io/library/python:3.11-slim"
        """Its image, which podman pulls when this machine has none of that name."""
        workdir: str | None = None
        """Work directory; None uses the task's, or /app. Made when the image has none."""
        cpu: float | None = None
        """Cores. None: no limit."""
        memory: float | None = None
        """Memory in GB. None: no limit."""
        gpu: str | None = None
        """How many NVIDIA GPUs, by the names that the NVIDIA container toolkit gave them. None: no GPU."""
        disk: float | None = None
        """GB that a task asks for; not enforced, podman has no limit that works on every storage."""
        run_options: list[str] = []
        """Further options of `podman run`, each one word: `--ulimit=nofile=1024:1024`, `--volume=/data:/data:ro`.
        Those of podman itself, such as the OCI runtime, belong into containers.conf."""

        @model_validator(mode="after")
        def _whole_network_or_none(self) -> Self:
            if self.network_restricted and self.allow:
                raise ValueError(
                    f"a podman container cannot filter its network by name (allow {self.allow}, block {self.block}): "
                    'use allow = [] (only the rollout\'s own endpoints while the agent runs) or allow = ["*"], or the '
                    "docker or prime runtime"
                )
            return self

else:
    from verifiers.v1.runtimes import PodmanConfig as PodmanConfig
    from verifiers.v1.runtimes import PodmanRuntimeInfo as PodmanRuntimeInfo


_BACKGROUND = 'log=$1; shift; exec "$@" >"$log" 2>&1 </dev/null'


class PodmanProcess(PipedProcess):
    """One command of a container with its stdin open, which the supervisor finds by its identity `command`.

    Exit codes are those of `podman exec`: 128 and the signal's number for a signal, 127 and 126 for a program that is
    missing or not executable, with the reason on stderr."""

    def __init__(
        self, container: Container, command: str, client: asyncio.subprocess.Process, fds: tuple[int, int, int]
    ) -> None:
        super().__init__(fds)
        self._container = container
        self._command = command
        self._client = client

    async def wait(self) -> int:
        code = await self._client.wait()
        if code != 0:
            self._container.require_alive("a process of it was waited for")
        return code

    async def poll(self) -> int | None:
        return self._client.returncode

    async def terminate(self) -> None:
        """Send SIGTERM to the process and everything it started."""
        if self._client.returncode is None:
            await self._container.channel.request("signal", self._command, str(int(signal.SIGTERM)))

    async def kill(self) -> None:
        """Kill the process and everything it started; nothing of it is left on return."""
        if self._client.returncode is None:
            await run_shielded(end_command(self._container, self._command, self._client))

    async def release(self) -> None:
        """End the `podman exec` of a process that is over or whose container is gone, and its streams; idempotent."""
        await engine.finish(self._client)
        self.close()


async def end_command(container: Container, command: str, client: asyncio.subprocess.Process) -> None:
    """Kill everything that a command started, and its `podman exec`, which may be about to start it."""
    for _ in range(30):
        with contextlib.suppress(SandboxError):  # the container may be gone
            await container.channel.request("end", command)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.wait()
                return
    await engine.finish(client)
    with contextlib.suppress(SandboxError):
        await container.channel.request("end", command)


def without_proxy(env: Mapping[str, str], image_env: Mapping[str, str]) -> dict[str, str]:
    """`env`, in which a proxy of the image's or the task's is not asked for what is reached on the loopback."""
    seen = {**image_env, **env}
    if not any(name.lower().endswith("_proxy") and name.lower() != "no_proxy" for name in seen):
        return dict(env)
    named = [entry.strip() for name in ("NO_PROXY", "no_proxy") for entry in seen.get(name, "").split(",")]
    exceptions = ",".join(dict.fromkeys(entry for entry in (*named, "localhost", "127.0.0.1") if entry))
    return {**env, "NO_PROXY": exceptions, "no_proxy": exceptions}


_PODMANS_OWN = ("/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv")
_SYSTEMS = ("/dev/", "/proc/", "/sys/")


@contextlib.asynccontextmanager
async def _paused(container: Container) -> AsyncIterator[None]:
    answer = await engine.call("pause", container.name)
    if answer.exit_code != 0:
        raise NotKept(f"what ran in the container could not be held still: {answer.stderr.strip()[-200:]}")
    try:
        yield
    finally:
        await run_shielded(engine.call("unpause", container.name))


async def _changed(container: Container, mounts: list[str]) -> dict[str, bool]:
    """Return what differs from the image but for `mounts`, by path, and whether the image's was taken away."""
    answer = await engine.call("diff", "--format", "json", container.name)
    if answer.exit_code != 0:
        raise NotKept(f"podman does not tell what has changed: {answer.stderr.strip()[-200:]}")
    return await asyncio.to_thread(_read_changes, answer.stdout, tuple(f"{one}/" for one in mounts))


def _read_changes(told: str, mounted: tuple[str, ...]) -> dict[str, bool]:
    said = json.loads(told or "{}")
    found = {path: kind == "deleted" for kind in ("changed", "added", "deleted") for path in said.get(kind) or ()}
    return {path: found[path] for path in sorted(found) if not f"{path}/".startswith(mounted)}


def _mounts(pid: int) -> dict[str, bool]:
    """The file systems mounted over the container's own, and whether their files are kept (/dev/shm, volumes)."""
    found: dict[str, bool] = {}
    for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines():
        point, options = line.split(" ")[4:6]
        path = point.encode().decode("unicode_escape").encode("latin-1").decode(errors="surrogateescape")
        own = path in _PODMANS_OWN or f"{path}/".startswith(_SYSTEMS)
        if path != "/":
            found[path] = path == "/dev/shm" or (not own and "rw" in options.split(","))
    return found


def _program(container: Container, name: str, *operands: str) -> contextlib.closing[ConfinedProcess]:
    """One of our programs, which the container's supervisor runs on its files, and which ends with its streams."""
    return contextlib.closing(ConfinedProcess(container.channel, "program", program_text(name), *operands))


class PodmanBackend(RuntimeBackend):
    """One podman container, from `start` to `stop`, which shows `binds` read-only.

    Commands run in the configured work directory as the image's user, or as the one of `with_user`."""

    is_local = True
    SUPPORTS_TASK_IMAGES = True
    SUPPORTS_USER_SWITCHING = True
    SUPPORTS_PORT_EXPOSURE = True
    config_class = PodmanConfig
    container_class: ClassVar[type[Container]] = Container

    def __init__(self, config: PodmanConfig, name: str | None = None, binds: Sequence[Bind] = ()) -> None:
        super().__init__(name)
        workdir = config.workdir or DEFAULT_WORKDIR
        self.config = config.model_copy(update={"workdir": workdir})
        self.info: Any = PodmanRuntimeInfo(**self.config.model_dump())
        options = ContainerOptions(
            image=config.image,
            workdir=workdir,
            cpu=config.cpu,
            memory=config.memory,
            gpu=config.gpu,
            restricted=config.network_restricted,
            binds=tuple(binds),
            run_options=tuple(getattr(config, "run_options", ())),  # verifiers' own configuration in 0.4.0 has none
        )
        self.container = self.container_class(options)
        self._processes: list[PodmanProcess] = []
        self._relays = NetworkRelays(lambda: self.container.channel, lambda: self.container.hosts)
        self._cut_from: list[str] = []
        """Names of podman's networks that it was taken from."""

    def bind(self, *, env: Mapping[str, str] | None = None) -> "PodmanRuntime":
        return PodmanRuntime(self, env=self.env if env is None else env)

    async def start(self) -> None:
        """Start the container (about 0.15 s, once the image is there); the message of an error says what to change."""
        await self.container.start()
        self.info.id = self.container.id

    async def teardown(self) -> None:
        try:
            await self._relays.close()
        finally:
            await super().teardown()
        for process in self._processes:
            await process.release()
        self.container.close_channel()

    def cleanup(self) -> None:
        self.container.remove()

    async def _arguments(self, env: Mapping[str, str], user: str | None, command: str = "", *mode: str) -> list[str]:
        """Return what comes before the words of a command, by whose identity the supervisor finds what it started;
        podman will not have to wait for what an agent that is root has put in the place of the accounts."""
        await self.container.channel.request("accounts")
        settings = without_proxy(env, self.container.image_env)
        marked = {**settings, COMMAND_VARIABLE.decode(): command} if command else settings
        variables = [word for name, value in marked.items() for word in ("--env", f"{name}={value}")]
        place = ("--workdir", self.container.options.workdir, self.container.name)
        return ["exec", *mode, *variables, *(("--user", user) if user else ()), *place]

    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a command to its end; cancelling ends its whole tree before the cancellation goes on."""
        command = uuid.uuid4().hex
        ended = partial(end_command, self.container, command)
        arguments = await self._arguments(runtime.process_env(env), runtime.user, command)
        result = await engine.call(*arguments, *argv, end=ended)
        if result.exit_code != 0:
            self.container.require_alive("a command ran in it")
        return result

    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        self.container.require_alive("a process was started in it")
        return await self._open(argv, runtime.process_env(env), runtime.user)

    async def _open(
        self, argv: Sequence[str], env: Mapping[str, str], user: str | None, *, interactive: bool = True
    ) -> PodmanProcess:
        """Start a process whose three streams stay open; not `interactive`, its stdin is empty."""
        command = uuid.uuid4().hex
        mode = ["--interactive"] if interactive else []
        arguments = [*await self._arguments(env, user, command, *mode), *argv]
        with contextlib.ExitStack() as theirs, contextlib.ExitStack() as ours:
            (stdin, to), (out, stdout), (error, stderr) = pipes(3)
            for fd in (stdin, stdout, stderr):
                theirs.callback(os.close, fd)
            for fd in (to, out, error):
                ours.callback(os.close, fd)
            client = await engine.start(arguments, stdin, stdout, stderr)
            ours.pop_all()
        process = PodmanProcess(self.container, command, client, (to, out, error))
        self._processes.append(process)
        return process

    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        arguments = await self._arguments(runtime.process_env(env), runtime.user, "", "--detach")
        answer = await engine.call(*arguments, "sh", "-c", _BACKGROUND, "background", log, *argv)
        if answer.exit_code != 0:
            self.container.require_alive("a process was started in the background")
            raise SandboxError(f"{argv[0]!r} could not be started in the background: {answer.stderr.strip()[-500:]}")

    async def _ask(self, user: str | None, argv: list[str], data: bytes, limit: int) -> tuple[int, bytes, str]:
        """Run a program of ours and `exchange` with it; without data its stdin is empty."""
        process = await self._open(argv, {}, user, interactive=bool(data))
        try:
            return await exchange(process, data, limit)
        finally:
            await process.release()

    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        return await read_file(partial(self._ask, runtime.user), path, max_bytes)

    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
        await write_file(partial(self._ask, runtime.user), path, data)

    def host_url(self, url: str) -> str:
        if self.container.options.restricted or is_own_machine(urlsplit(url).hostname or ""):
            return self._relays.inward(url)
        return url

    async def expose(self, port: int) -> str:
        return self._relays.outward(port)

    async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
        """Take the network from a container that is allowed none; without routes, give it back."""
        if network is not None and network.network_restricted and network.allow:
            raise SandboxError(f"container {self.name} cannot filter its network by name (allow {network.allow})")
        if not self.network_restricted:
            return
        if routes is None:
            while self._cut_from:
                await self._podman("network", "connect", self._cut_from[-1])
                self._cut_from.pop()
        elif not self._cut_from:
            for name in json.loads(await self._podman("inspect", "--format", "{{json .NetworkSettings.Networks}}")):
                await self._podman("network", "disconnect", name)
                self._cut_from.append(name)

    async def _podman(self, *argv: str) -> str:
        answer = await engine.call(*argv, self.container.name)
        if answer.exit_code != 0:
            raise SandboxError(f"podman {' '.join(argv)} failed: {answer.stderr.strip()[-500:]}")
        return answer.stdout


class PodmanRuntime(SandboxAbilities, Runtime):
    """A view of a podman container."""

    backend: PodmanBackend
    can_end_agent = True
    can_keep_files = True

    @property
    def container(self) -> tuple[str, str]:
        return "podman", self.backend.container.id

    async def read_answer(self, path: str, max_bytes: int) -> bytes | str | None:
        if self.user is not None:  # the supervisor sees the files as the image's user does
            return None
        return await read_answer(self.backend.container.channel, path, max_bytes)

    async def keep_files(self, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
        """Keep what differs from the image, and what volumes and /dev/shm hold, while the container is paused."""
        container, begun = self.backend.container, time.monotonic()
        async with _paused(container):
            mounts = _mounts(container.pid)
            roots = [path for path, writable in mounts.items() if writable]
            changed = await _changed(container, list(mounts))
            with _program(container, "list_and_send.py", json.dumps(roots), "[]") as process:
                kept = await keep(process, folder, before, most, changed)
            return kept, time.monotonic() - begun

    async def put_files(self, folder: Path) -> None:
        with _program(self.backend.container, "put_files.py") as process:
            await put(process, folder)

    async def mark_agent_start(self) -> None:
        await self.backend.container.channel.request("mark")

    async def end_agent_processes(self) -> None:
        """Kill every process but those that ran at the mark and what tool servers among them started."""
        try:
            for asked in ("purge", "accounts"):  # which podman would read as it copies files, too
                await self.backend.container.channel.request(asked)
        except SandboxError as error:
            raise SandboxError(f"the agent's processes could not be ended: {error}") from error


def is_ours(config: RuntimeConfig) -> TypeIs[PodmanConfig]:
    """Whether this configuration is for our runtime: podman on Linux, with the whole network or none for the agent.

    Filtering it by name takes the runtime that verifiers 0.4.0 has, with its proxy and its image of network tools.
    """
    whole_or_none = isinstance(config, PodmanConfig) and not (config.network_restricted and config.allow)
    return whole_or_none and sys.platform == "linux"


def provision_podman(
    config: PodmanConfig, binds: Sequence[Bind] = (), env: Mapping[str, str] | None = None
) -> AbstractAsyncContextManager[PodmanRuntime]:
    """Start a container and remove it on exit, whatever happens; arguments as of `PodmanBackend`."""
    return provisioned(PodmanBackend(config, binds=binds), env)
