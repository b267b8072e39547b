"""The container of a rollout: of our runtimes for podman and Prime, else of verifiers' own; the task's image first.

The image of a task that brings a Dockerfile is built on the machine that runs the containers. Invariant: it is named by
a hash of what it is built from, so it is built once per machine, and an equal name is an equal recipe. What a task
brings is read from its data by name, so that any task class can bring one.
"""

import asyncio
import base64
import contextlib
import io
import os
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Any

from opencode_rubrics.cache import cache_root
from rollout_sandbox.file_lock import locked_async, private_directory
from rollout_sandbox.podman import is_ours, provision_podman
from rollout_sandbox.prime import lifetime_minutes, provision_prime
from rollout_sandbox.told import task_name
from verifiers.v1.agent import Agent
from verifiers.v1.errors import SandboxError, TaskError
from verifiers.v1.runtimes import PrimeConfig, Runtime, RuntimeConfig
from verifiers.v1.task import Task
from verifiers.v1.utils.aio import run_shielded
from verifiers.v1.utils.compile import resolve_runtime_config

from opencode_env.cli_agent.rollout import Rollout

_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Debian's Python 3.11.2 has no filters; what is extracted was packed from the task's own folder."""


@contextlib.asynccontextmanager
async def provision_container(task: Task[Any, Any, Any], agent: Agent, rollout: Rollout) -> AsyncIterator[Runtime]:
    """A started container of the seat's runtime, removed on exit.

    Raises:
        SandboxError: its image could not be built, or it could not be started.
        TaskError: its image is to be built, and this runtime builds none.
    """
    config = resolve_runtime_config(agent.runtime_config, task)
    await build_task_image(config, task)
    started: AbstractAsyncContextManager[Runtime]
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
