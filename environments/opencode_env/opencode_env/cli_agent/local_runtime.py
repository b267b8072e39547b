"""The runtime behind a seat's `subprocess` type: the confined local sandbox, or, by explicit choice, no confinement."""

import asyncio
import contextlib
import os
import shutil
import signal
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from rollout_sandbox.compat import Runtime, SubprocessBackend
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.interface import SandboxAbilities
from rollout_sandbox.provisioning import provisioned
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError, TaskError
from verifiers.v1.runtimes import ProgramResult, RuntimeProcess, SubprocessConfig

_MARK = "OPENCODE_ENV_UNCONFINED"
_IN_WORKDIR = 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"'
_REWARDS = "/logs/verifier"
"""Where verify commands may write their reward."""
_added: Counter[Path] = Counter()
"""How many rollouts of this process use a directory that was not here before the first of them."""


class FrameworkOnlyConfig(SubprocessConfig, NetworkPolicyConfig):
    """The configuration of a confined sandbox, whose programs reach the rollout's own endpoints and nothing else.
    verifiers calls that framework-only, and believes what a lent sandbox's configuration says."""

    allow: list[str] = []
    block: list[str] = ["*"]


def local_runtime_config(asked: NetworkPolicyConfig, options: LocalSandboxConfig) -> SubprocessConfig:
    """What a local sandbox tells verifiers of itself, for a task that asks for this network.

    Raises:
        TaskError: the sandbox would give the task more, or less, than it asks for.
    """
    if not asked.network_restricted:
        return SubprocessConfig()
    if not options.confine or options.network == "host":
        raise TaskError(
            "the task bounds what its sandbox may reach, and this one reaches all that this machine does: leave out "
            "--env.sandbox.network host and --env.sandbox.confine false"
        )
    if asked.allow:
        hosts = ", ".join(f"no {host}" for host in asked.block) or ", ".join(asked.allow)
        raise TaskError(
            f"the task asks for a network with {hosts}, and the local sandbox reaches the rollout's own endpoints and "
            "nothing else: use --env.agent.runtime.type docker or prime"
        )
    return FrameworkOnlyConfig()


def _first_new(path: Path) -> Path | None:
    """The topmost of a directory and its parents that rollouts have added, or are about to add."""
    lineage = [*reversed(path.parents), path]
    return next((part for part in lineage if _added[part] or not os.path.lexists(part)), None)


class UnconfinedBackend(SubprocessBackend):
    """verifiers' plain subprocess runtime, accepted by the user: the agent sees and changes this machine's files. A
    work directory that the user or the task named is kept with what the agent made in it; the default one and
    `/logs/verifier`, which all rollouts share, go with the last rollout of this process, unless they were there before.
    """

    def __init__(self, agent_workdir: str) -> None:
        super().__init__(SubprocessConfig())
        self.agent_workdir = agent_workdir
        self._uses: list[Path] = []

    def bind(self, *, env: Mapping[str, str] | None = None) -> "UnconfinedRuntime":
        """A view with these variables, or with the runtime's own."""
        return UnconfinedRuntime(self, env=self.env if env is None else env)

    async def start(self) -> None:
        """Remember what was here before."""
        await super().start()
        wanted = [_REWARDS] if self.agent_workdir != DEFAULT_WORKDIR else [DEFAULT_WORKDIR, _REWARDS]
        self._uses = [top for path in wanted if (top := _first_new(Path(path))) is not None]
        _added.update(self._uses)

    def cleanup(self) -> None:
        """Remove what the rollout added; idempotent."""
        super().cleanup()
        while self._uses:
            path = self._uses.pop()
            _added[path] -= 1
            if not _added[path]:
                path.unlink() if path.is_symlink() else shutil.rmtree(path, ignore_errors=True)

    async def teardown(self) -> None:
        """End background servers and remove what the rollout added."""
        await super().teardown()
        await asyncio.to_thread(self.cleanup)


class UnconfinedRuntime(SandboxAbilities, Runtime):
    """A view of it. What the agent started is told by a mark in its environment, which a hostile agent can shed."""

    backend: UnconfinedBackend
    can_end_agent = True
    is_this_machine = True

    async def run(self, argv: list[str], env: dict[str, str]) -> ProgramResult:
        """Run a command, and one that carries the mark in the agent's work directory."""
        marked = _MARK in self.process_env(env)
        return await super().run(self._in_workdir(argv) if marked else argv, env)

    async def exec(self, argv: list[str], env: dict[str, str]) -> RuntimeProcess:
        """Start an agent that is talked to, in the work directory, with the mark in its environment."""
        return await super().exec(self._in_workdir(argv), {**env, _MARK: self.name})

    def _in_workdir(self, argv: list[str]) -> list[str]:
        return ["sh", "-c", _IN_WORKDIR, "agent", self.backend.agent_workdir, *argv]

    def agents_view(self) -> Runtime:
        """This runtime with the mark on everything that it runs."""
        return self.with_env({**self.env, _MARK: self.name})

    async def mark_agent_start(self) -> None:
        """Nothing to remember: the mark is in the environment."""

    async def end_agent_processes(self) -> None:
        """Kill every process that carries this runtime's mark.

        Raises:
            SandboxError: when some still live after ten rounds.
        """
        for _ in range(10):
            marked = await asyncio.to_thread(self._marked)
            if not marked:
                return
            for pid in marked:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            await asyncio.sleep(0.05)
        raise SandboxError(f"processes of the unconfined agent survive: {marked}")

    def _marked(self) -> list[int]:
        wanted = f"{_MARK}={self.name}".encode()
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
        return found


@contextlib.asynccontextmanager
async def provision_local(
    options: LocalSandboxConfig,
    binds: Sequence[Bind],
    env: Mapping[str, str],
    workdir: str,
    network: NetworkPolicyConfig | None = None,
) -> AsyncIterator[Runtime]:
    """A started local runtime, removed on exit.

    Args:
        options: whether and how it is confined.
        binds: host directories to show read-only; without effect when unconfined.
        workdir: absolute path of the work directory; private, unless unconfined.
        network: what the task asks for; None is whatever there is.

    Raises:
        SandboxError: it could not be started.
        TaskError: it cannot give the task the network that it asks for.
    """
    config = local_runtime_config(network or NetworkPolicyConfig(), options)
    if options.confine:
        async with provision_confined(options, binds, env=env, workdir=workdir) as box:
            box.backend.config = config
            yield box
        return
    async with provisioned(UnconfinedBackend(workdir), env) as runtime:
        yield runtime
