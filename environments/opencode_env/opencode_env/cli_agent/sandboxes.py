"""What gives a rollout its sandbox: a container, the confined local sandbox, or, by explicit choice, no confinement.

A container is one of our runtimes for podman and Prime, else of verifiers' own. The image of a task that brings a
Dockerfile is built on the machine that runs the containers, and named by a hash of what it is built from: it is built
once per machine, and an equal name is an equal recipe. What a task brings is read from its data by name, so that any
task class can bring one.
"""

import asyncio
import base64
import contextlib
import io
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from opencode_rubrics.cache import cache_root
from rollout_sandbox.compat import Runtime, SubprocessBackend
from rollout_sandbox.confined import Bind, LocalSandboxConfig, provision_confined
from rollout_sandbox.file_lock import locked_async, private_directory
from rollout_sandbox.interface import SandboxAbilities
from rollout_sandbox.podman import is_ours, provision_podman
from rollout_sandbox.prime import lifetime_minutes, provision_prime
from rollout_sandbox.provisioning import provisioned
from rollout_sandbox.told import task_name
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.agent import Agent
from verifiers.v1.configs.runtime import NetworkPolicyConfig
from verifiers.v1.errors import SandboxError, TaskError
from verifiers.v1.runtimes import PrimeConfig, ProgramResult, RuntimeConfig, RuntimeProcess, SubprocessConfig
from verifiers.v1.runtimes import Runtime as VerifiersRuntime
from verifiers.v1.task import Task
from verifiers.v1.utils.aio import run_shielded
from verifiers.v1.utils.compile import resolve_runtime_config

from opencode_env.cli_agent.rollout import Rollout

_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Debian's Python 3.11.2 has no filters; what is extracted was packed from the task's own folder."""


@contextlib.asynccontextmanager
async def provision_container(
    task: Task[Any, Any, Any], agent: Agent, rollout: Rollout
) -> AsyncIterator[VerifiersRuntime]:
    """A started container of the seat's runtime, removed on exit.

    Raises:
        SandboxError: its image could not be built, or it could not be started.
        TaskError: its image is to be built, and this runtime builds none.
    """
    config = resolve_runtime_config(agent.runtime_config, task)
    await build_task_image(config, task)
    started: AbstractAsyncContextManager[VerifiersRuntime]
    if isinstance(config, PrimeConfig):
        started = provision_prime(config, lifetime_minutes(_stages(task, agent)), task.runtime_env(), rollout.start)
    elif is_ours(config):
        binds = getattr(agent.harness, "container_binds", list)
        started = provision_podman(config, binds(), task.runtime_env())
    else:
        started = agent.provision(task)
    async with started as box:
        yield box


def _stages(task: Task[Any, Any, Any], agent: Agent) -> list[float | None]:
    """The seconds that the stages of a rollout may take; that of scoring as it was before `take_scoring_limit`."""
    own, tasks = agent.timeout, task.data.timeout
    scoring = agent.config.timeout.scoring
    pairs = [(own.setup, tasks.setup), (own.rollout, tasks.agent), (own.finalize, tasks.finalize)]
    return [first if first is not None else second for first, second in [*pairs, (scoring, tasks.scoring)]]


async def build_task_image(config: RuntimeConfig, task: Task[Any, Any, Any]) -> None:
    """Build the image that `config` names, unless the task brings none or the engine has it.

    Raises:
        SandboxError: it could not be built; with the end of the engine's output.
        TaskError: the runtime builds no images.
    """
    build = getattr(getattr(task.data, "folder", None), "build", None)
    if build is None or getattr(config, "image", None) != task.data.image:
        return
    image, engine = str(task.data.image), _engine(config)
    if engine is None:
        raise TaskError(
            f"task {task_name(task.data)} brings a Dockerfile, and the {config.type} runtime builds none: use "
            "--env.agent.runtime.type podman or docker, or build it and name it as docker_image in task.toml"
        )
    lock = private_directory(cache_root() / "task-images") / image.rpartition(":")[2]
    async with locked_async(lock):  # another rollout, or a process beside this one, may build the same
        if (await _call([engine, "image", "inspect", image], 60.0))[0] == 0:
            return
        with tempfile.TemporaryDirectory(prefix="vf-task-image-") as directory:
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(build.context)), mode="r:gz") as archive:
                await asyncio.to_thread(archive.extractall, directory, **_SAFELY)
            code, said = await _call([engine, "build", "--quiet", "--tag", image, directory], build.timeout)
    if code != 0:
        raise SandboxError(f"the image of {task.data.id} could not be built with {engine} (exit {code}): {said[-800:]}")


def _engine(config: RuntimeConfig) -> str | None:
    """The program that builds for a container of this machine."""
    named = getattr(config, "type", "")
    kind = "podman" if "podman" in f"{named} {getattr(config, 'import_path', '')}".lower() else named
    return kind if kind in ("podman", "docker") and getattr(config, "host", None) is None else None


async def _call(argv: list[str], seconds: float) -> tuple[int, str]:
    """Exit code and output of an engine's program, which is ended when it takes longer or the caller is cancelled."""
    try:
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
    except FileNotFoundError as error:
        raise SandboxError(f"{argv[0]} is not installed on this machine") from error
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate()
    except TimeoutError as error:
        raise SandboxError(f"`{' '.join(argv[:2])}` did not end within {seconds:g} s (build_timeout_sec)") from error
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await run_shielded(process.communicate())
    assert process.returncode is not None
    return process.returncode, output.decode(errors="replace").strip()


_MARK = "OPENCODE_ENV_UNCONFINED"
_IN_WORKDIR = 'mkdir -p -- "$1" && cd -- "$1" && shift && exec "$@"'
_REWARDS = "/logs/verifier"
"""Where verify commands may write their reward."""
_added: Counter[Path] = Counter()
"""How many rollouts of this process use a directory that was not here before the first of them."""
_adding = threading.Lock()
"""Held while one is counted or removed: a rollout starts while another's sandbox is cleaned up."""


class FrameworkOnlyConfig(SubprocessConfig, NetworkPolicyConfig):
    """The configuration of a confined sandbox, whose programs reach the rollout's own endpoints and nothing else.
    verifiers calls that framework-only, and believes what a lent sandbox's configuration says."""

    allow: list[str] = []
    block: list[str] = ["*"]


def local_runtime_config(asked: NetworkPolicyConfig, options: LocalSandboxConfig) -> SubprocessConfig:
    """Return what a local sandbox tells verifiers of itself, for a task that asks for this network.

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
        await asyncio.to_thread(self._use, wanted)

    def _use(self, wanted: Sequence[str]) -> None:
        with _adding:
            self._uses = [top for path in wanted if (top := _first_new(Path(path))) is not None]
            _added.update(self._uses)

    def cleanup(self) -> None:
        """Remove what the rollout added; idempotent."""
        super().cleanup()
        with _adding:
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
