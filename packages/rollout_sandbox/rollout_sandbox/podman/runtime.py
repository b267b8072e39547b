"""The verifiers runtime of a podman container that we start and remove ourselves.

It is named by `--env.agent.runtime.type custom --env.agent.runtime.import-path rollout_sandbox.PodmanBackend`; under
verifiers 0.4.0, whose own asks podman seven times before the first command, by `--env.agent.runtime.type podman`.
Invariant: a rollout's container costs one call of podman to start and one to remove. What else a runtime does, a
process of ours that stands outside the container does (its supervisor), or `podman exec`. A container whose policy
allows nothing has no interface but its loopback while the agent runs, so that only the endpoints that were handed to
`host_url` can be reached, and those through sockets that the supervisor made.
"""

import ipaddress
import json
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import urlsplit

from typing_extensions import TypeIs
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import ProgramResult, RuntimeConfig, RuntimeProcess

from rollout_sandbox.compat import Runtime, RuntimeBackend
from rollout_sandbox.confined import Bind
from rollout_sandbox.confined.files import read_answer
from rollout_sandbox.confined.network_relays import NetworkRelays
from rollout_sandbox.confined.relay import IDLE_SECONDS, MAX_CONNECTIONS
from rollout_sandbox.podman import engine, kept
from rollout_sandbox.podman.commands import Commands, read_file, write_file
from rollout_sandbox.podman.config import PodmanConfig, PodmanRuntimeInfo
from rollout_sandbox.podman.container import Container, ContainerOptions
from rollout_sandbox.provisioning import provisioned
from rollout_sandbox.toolbox.kept_files import KeptFiles
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR


class PodmanBackend(RuntimeBackend):
    """One podman container, from `start` to `stop`.

    Commands run in the configured work directory as the image's user, or as the one of `with_user`.

    Args:
        config: the seat's runtime.
        name: for messages; random by default.
        binds: host files and directories that it shows, read-only.
    """

    is_local = True
    SUPPORTS_TASK_IMAGES = True
    SUPPORTS_USER_SWITCHING = True
    SUPPORTS_PORT_EXPOSURE = True
    config_class = PodmanConfig
    engine: ClassVar[str] = "podman"
    """The command that knows the container, whatever runs in it."""
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
        self._commands = Commands(self.container)
        self._relays: NetworkRelays | None = None
        self._cut_from: list[str] = []
        """Names of podman's networks that it was taken from."""

    def bind(self, *, env: Mapping[str, str] | None = None) -> "PodmanRuntime":
        return PodmanRuntime(self, env=self.env if env is None else env)

    async def start(self) -> None:
        """Start the container (about 0.15 s, once the image is there); the message of an error says what to change."""
        await self.container.start()
        self.info.id = self.container.id
        hosts = self.container.hosts
        self._relays = NetworkRelays(self.container.channel, hosts, most=MAX_CONNECTIONS, idle=IDLE_SECONDS)

    async def teardown(self) -> None:
        """End everything inside and remove the container; idempotent."""
        try:
            if self._relays is not None:
                await self._relays.close()
        finally:
            await super().teardown()
        await self._commands.close()
        self.container.close_channel()

    def cleanup(self) -> None:
        self.container.remove()

    async def run(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a command to its end; its output is kept in bounded memory. Cancelled, its whole tree is ended first."""
        return await self._commands.run(argv, runtime.process_env(env), runtime.user)

    async def exec(self, runtime: Runtime, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        self.container.require_alive("a process was started in it")
        return await self._commands.open(argv, runtime.process_env(env), runtime.user)

    async def run_background(self, runtime: Runtime, argv: list[str], env: dict[str, str], log: str) -> None:
        await self._commands.background(argv, runtime.process_env(env), log, runtime.user)

    async def read(self, runtime: Runtime, path: str, max_bytes: int | None = None) -> bytes:
        """The first `max_bytes` bytes of a regular file, or all of it if that is at most `READ_LIMIT_BYTES`."""
        return await read_file(self._commands, path, max_bytes, runtime.user)

    async def write(self, runtime: Runtime, path: str, data: bytes) -> None:
        """Write the regular file at `path`, or the one that a symlink there leads to; make its parents."""
        await write_file(self._commands, path, data, runtime.user)

    def host_url(self, url: str) -> str:
        """Return the URL at which a program inside reaches `url`, a host or remote URL, and open the way there."""
        if self.container.options.restricted or _is_loopback(urlsplit(url).hostname or ""):
            return self._open_relays().inward(url)
        return url

    async def expose(self, port: int) -> str:
        """Return a URL on the host's loopback for a port inside, which is not published; closed by `stop`."""
        return self._open_relays().outward(port)

    async def prepare_execution(self, routes: list[str] | None, network: NetworkPolicyConfig | None = None) -> None:
        """Take the network from a container whose policy, or `network`, allows nothing; without routes, give it back.
        It cannot allow some names only."""
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

    def _open_relays(self) -> NetworkRelays:
        if self._relays is None:
            raise SandboxError(f"podman runtime {self.name} is not started")
        return self._relays


class PodmanRuntime(Runtime):
    """A view of a podman container, with what it can do beyond what verifiers asks of a runtime."""

    backend: PodmanBackend

    async def read_answer(self, path: str, max_bytes: int) -> bytes | str:
        return await read_answer(self.backend.container.channel, path, max_bytes)

    async def keep_files(self, folder: Path, before: Path | None, most: int) -> tuple[KeptFiles, float]:
        """Keep what differs from the image; see `KeepsFiles`."""
        return await kept.keep_files(self.backend.container, folder, before, most)

    async def put_files(self, folder: Path) -> None:
        await kept.put_files(self.backend.container, folder)

    async def mark_agent_start(self) -> None:
        """Remember the processes that run now, which `end_agent_processes` will spare."""
        await self.backend.container.channel.request("mark")

    async def end_agent_processes(self) -> None:
        """Kill every process but those that ran at `mark_agent_start` and what tool servers among them started."""
        try:
            await self.backend.container.channel.request("purge")
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


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
