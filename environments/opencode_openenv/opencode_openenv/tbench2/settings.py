"""The settings of the environment: its constructor's arguments, else the `TB2_*` variables, else the defaults."""

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from opencode_env.check_tasks.check import CheckEnv
from opencode_env.cli_agent.env import CliAgentEnvConfig
from opencode_env.taskset import OpenCodeTasksetConfig
from opencode_rubrics.cache import cache_root
from rollout_sandbox.podman import PodmanConfig
from verifiers.v1.runtimes import DockerConfig, RuntimeConfig, SubprocessConfig

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
    """Sets where the server listens, and whom it serves."""

    MAX_REQUEST_BYTES: ClassVar[int] = 64 << 20
    """The most that one connection may send at once, such as the content of a file."""


def most_sessions() -> int:
    """Sessions at once, of `MAX_CONCURRENT_ENVS`; a `ValueError` where that is not a number above 0."""
    given = os.environ.get("MAX_CONCURRENT_ENVS", "8")
    if not given.isdecimal() or int(given) < 1:
        raise ValueError(f"MAX_CONCURRENT_ENVS is {given!r}: write a number of sessions, at least 1")
    return int(given)


def sandboxes_of(runtime: RuntimeConfig) -> CheckEnv:
    """An environment with sandboxes of this runtime, and without an agent; `subprocess` is the confined local one."""
    agent = CliAgentEnvConfig().agent.model_copy(update={"runtime": runtime})
    return CheckEnv(CliAgentEnvConfig(taskset=OpenCodeTasksetConfig(id="opencode-env"), agent=agent))


@dataclass(frozen=True)
class Tbench2Settings:
    """Sets where tasks are, where they run, and for how long a command may."""

    tasks_dir: Path | None
    """None is the downloaded benchmark."""
    output_dir: Path
    cache_dir: Path
    repo_url: str | None
    """Where the benchmark is downloaded from, as `URL#sha256=HEX`."""
    command_timeout_s: float
    runtime: RuntimeConfig


def read_settings(
    tasks_dir: str | Path | None = None,
    output_dir: str | Path | None = None,
    command_timeout_s: float | None = None,
    mode: str | None = None,
    runtime: RuntimeConfig | None = None,
) -> Tbench2Settings:
    """The settings; `runtime` goes before `mode`. A `ValueError` names a variable or argument that means nothing."""
    mode = mode or os.environ.get("TB2_MODE") or "local"
    if mode not in MODES:
        raise ValueError(f"TB2_MODE is {mode!r}: write {', '.join(MODES)}")
    usual_runtime, usual_seconds = MODES[mode]
    given = os.environ.get("TB2_COMMAND_TIMEOUT_S")
    try:
        seconds = command_timeout_s if command_timeout_s is not None else float(given or usual_seconds)
    except ValueError as error:
        raise ValueError(f"TB2_COMMAND_TIMEOUT_S is {given!r}, which is not a number of seconds") from error
    if not 0 < seconds <= 86_400:
        raise ValueError(f"command_timeout_s is {seconds:g}: write a number of seconds above 0, at most a day")
    named = tasks_dir or os.environ.get("TB2_TASKS_DIR")
    output = output_dir or os.environ.get("TB2_OUTPUT_DIR") or Path(tempfile.gettempdir(), "tbench2_env_runs")
    return Tbench2Settings(
        tasks_dir=Path(named).expanduser() if named else None,
        output_dir=Path(output).expanduser(),
        cache_dir=Path(os.environ.get("TB2_CACHE_DIR") or cache_root() / "terminal-bench-2").expanduser(),
        repo_url=os.environ.get("TB2_REPO_URL") or None,
        command_timeout_s=seconds,
        runtime=runtime or usual_runtime(),
    )
