"""The runtime behind a seat's `subprocess` type: the confined local sandbox, or, by explicit choice, no confinement.

Invariant: a directory that was there before any rollout, or that a rollout of any process still uses, is never removed.
The lock file of a directory is held shared by every rollout that uses it, and says whether a rollout added it.
"""

import asyncio
import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

from rollout_sandbox.compat import Runtime, SubprocessBackend
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.file_lock import private_directory
from rollout_sandbox.interface import SandboxAbilities
from rollout_sandbox.provisioning import provisioned
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError, TaskError
from verifiers.v1.runtimes import ProgramResult, RuntimeProcess, SubprocessConfig
from verifiers.v1.utils.paths import CACHE_DIR

_MARK = "OPENCODE_ENV_UNCONFINED"
_IN_WORKDIR = 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"'
_REWARDS = "/logs/verifier"
"""Where verify commands may write their reward."""


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


class UnconfinedBackend(SubprocessBackend):
    """verifiers' plain subprocess runtime, accepted by the user: the agent sees and changes this machine's files. A
    work directory that the user or the task named is kept with what the agent made in it; the default one and
    `/logs/verifier` go, unless they were there before."""

    def __init__(self, agent_workdir: str) -> None:
        super().__init__(SubprocessConfig())
        self.agent_workdir = agent_workdir
        self._added: list[AddedDirectory] = []

    def bind(self, *, env: Mapping[str, str] | None = None) -> "UnconfinedRuntime":
        """A view with these variables, or with the runtime's own."""
        return UnconfinedRuntime(self, env=self.env if env is None else env)

    async def start(self) -> None:
        """Remember what was here before."""
        await super().start()
        wanted = [_REWARDS] if self.agent_workdir != DEFAULT_WORKDIR else [DEFAULT_WORKDIR, _REWARDS]
        self._added = [await asyncio.to_thread(AddedDirectory, path) for path in wanted]

    def cleanup(self) -> None:
        """Remove what the rollout added; idempotent."""
        super().cleanup()
        for directory in self._added:
            directory.release()

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


_LOCKS = CACHE_DIR / "runtimes" / "unconfined-locks"
_ADDED = b"added by a rollout"


class AddedDirectory:
    """One rollout's use of the directory `path`, from now to `release` (blocking, below a millisecond as a rule)."""

    def __init__(self, path: str) -> None:
        lineage = [*reversed(Path(path).parents), Path(path)]
        name = hashlib.sha256(path.encode()).hexdigest()[:32]
        self._fd: int | None = os.open(private_directory(_LOCKS) / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._fd, fcntl.LOCK_SH)
        recorded = os.pread(self._fd, 4096, 0).partition(b"\n")
        new = [part for part in lineage if not os.path.lexists(part)]
        if new:
            os.truncate(self._fd, 0)
            os.pwrite(self._fd, b"%s\n%s" % (_ADDED, os.fsencode(new[0])), 0)
            self._top: Path | None = new[0]
        else:
            self._top = Path(os.fsdecode(recorded[2])) if recorded[0] == _ADDED else None

    def release(self) -> None:
        """Remove what was added, if this was its last user; idempotent."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        else:
            if self._top is not None:
                if self._top.is_symlink():
                    self._top.unlink()
                else:
                    shutil.rmtree(self._top, ignore_errors=True)
                os.truncate(fd, 0)
        finally:
            os.close(fd)
