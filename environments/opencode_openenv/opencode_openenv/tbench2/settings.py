"""The settings of the environment: its constructor's arguments, else the `TB2_*` variables, else the defaults.

A task's sandbox is the confined local one, or a container of any of verifiers' runtimes.
"""

import contextlib
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from opencode_env.cli_agent.containers import build_task_image
from opencode_env.cli_agent.local_runtime import provision_local
from opencode_rubrics.cache import cache_root
from rollout_sandbox.compat import asked_network
from rollout_sandbox.confined import LocalSandboxConfig, require_private_workdir
from rollout_sandbox.podman import PodmanConfig, is_ours, provision_podman
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.errors import TaskError
from verifiers.v1.runtimes import DockerConfig, Runtime, RuntimeConfig, SubprocessConfig, provision_runtime
from verifiers.v1.task import Task
from verifiers.v1.utils.compile import resolve_runtime_config

from opencode_openenv.listening import ListenConfig

DEFAULT_SESSION = "tb2-session"
MODES: Mapping[str, tuple[Callable[[], RuntimeConfig], float]] = {
    "local": (SubprocessConfig, 20.0),
    "docker": (DockerConfig, 300.0),
    "podman": (PodmanConfig, 300.0),
}
"""How the runtime is configured for each of them, and seconds that a blocking command has."""
VARIABLES = {
    "TB2_TASKS_DIR": "folder of task directories, such as a checkout of Terminal-Bench 2",
    "TB2_REPO_URL": "where they are downloaded from instead, once: https://…/COMMIT.zip#sha256=HEX",
    "TB2_CACHE_DIR": "where that is kept; by default in the cache of opencode-env",
    "TB2_MODE": "where tasks run: local (the confined sandbox, the default), docker or podman",
    "TB2_COMMAND_TIMEOUT_S": "seconds that a blocking command has; 20 in the local sandbox, 300 in a container",
    "TB2_OUTPUT_DIR": "where session logs go; by default tbench2_env_runs in the directory for temporary files",
    "MAX_CONCURRENT_ENVS": "sessions at once; 8",
}
"""Every variable that is read here, and what it means."""


class Tbench2ServerConfig(ListenConfig):
    """Where the server listens, and whom it serves."""

    MAX_REQUEST_BYTES: ClassVar[int] = 64 << 20
    """For the content of a file."""


def most_sessions() -> int:
    """Sessions at once, of `MAX_CONCURRENT_ENVS`; a `ValueError` where that is not a number above 0."""
    given = os.environ.get("MAX_CONCURRENT_ENVS", "8")
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"MAX_CONCURRENT_ENVS is {given!r}: write a number of sessions, at least 1")
    return int(given)


@dataclass(frozen=True)
class SandboxPlace:
    runtime: RuntimeConfig = field(default_factory=SubprocessConfig)
    """As `--env.agent.runtime.*`; `subprocess` is the confined local sandbox."""
    sandbox: LocalSandboxConfig = field(default_factory=LocalSandboxConfig)

    @contextlib.asynccontextmanager
    async def box(self, task: Task[Any, Any, Any]) -> AsyncIterator[Runtime]:
        """A started sandbox for a task, before its setup; removed on exit.

        Raises:
            SandboxError: it could not be started, or its image not be built.
            TaskError: this kind of sandbox cannot run the task.
        """
        workdir, env = workdir_of_task(task), task.runtime_env()
        if isinstance(self.runtime, SubprocessConfig):
            if task.data.image is not None:
                raise TaskError(
                    f"task {task.data.id} asks for image {task.data.image!r}, which the local sandbox cannot give: set "
                    "TB2_MODE to docker or podman"
                )
            require_private_workdir(workdir)
            async with provision_local(self.sandbox, (), env, workdir, asked_network(task.data)) as box:
                yield box
            return
        settings = {"workdir": workdir} if "workdir" in type(self.runtime).model_fields else {}
        config = resolve_runtime_config(self.runtime.model_copy(update=settings), task)
        await build_task_image(config, task)
        made = provision_podman(config, (), env) if is_ours(config) else provision_runtime(config, env=env)
        async with made as box:
            yield box


def workdir_of_task(task: Task[Any, Any, Any]) -> str:
    return str(task.data.workdir or DEFAULT_WORKDIR)


@dataclass(frozen=True)
class Settings:
    """Where tasks are, where they run, and for how long a command may."""

    tasks_dir: Path | None
    """None is the downloaded benchmark."""
    output_dir: Path
    cache_dir: Path
    repo_url: str | None
    """Where the benchmark is downloaded from, as `URL#sha256=HEX`."""
    command_timeout_s: float
    place: SandboxPlace


def read_settings(
    tasks_dir: str | Path | None = None,
    output_dir: str | Path | None = None,
    command_timeout_s: float | None = None,
    mode: str | None = None,
    place: SandboxPlace | None = None,
) -> Settings:
    """The settings; `place` goes before `mode`.

    Raises:
        ValueError: a variable or argument means nothing; the message names it.
    """
    mode = mode or os.environ.get("TB2_MODE") or "local"
    if mode not in MODES:
        raise ValueError(f"TB2_MODE is {mode!r}: write {', '.join(MODES)}")
    runtime, usual_seconds = MODES[mode]
    given = os.environ.get("TB2_COMMAND_TIMEOUT_S")
    try:
        seconds = command_timeout_s if command_timeout_s is not None else float(given or usual_seconds)
    except ValueError as error:
        raise ValueError(f"TB2_COMMAND_TIMEOUT_S is {given!r}, which is not a number of seconds") from error
    if not 0 < seconds <= 86_400:
        raise ValueError(f"command_timeout_s is {seconds:g}: write a number of seconds above 0, at most a day")
    named = tasks_dir or os.environ.get("TB2_TASKS_DIR")
    output = output_dir or os.environ.get("TB2_OUTPUT_DIR") or Path(tempfile.gettempdir(), "tbench2_env_runs")
    return Settings(
        tasks_dir=Path(named).expanduser() if named else None,
        output_dir=Path(output).expanduser(),
        cache_dir=Path(os.environ.get("TB2_CACHE_DIR") or cache_root() / "terminal-bench-2").expanduser(),
        repo_url=os.environ.get("TB2_REPO_URL") or None,
        command_timeout_s=seconds,
        place=place or SandboxPlace(runtime()),
    )
