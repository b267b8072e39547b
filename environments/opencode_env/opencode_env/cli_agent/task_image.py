"""Builds the container image of a task that brings a Dockerfile, on the machine that runs the containers.

Invariant: an image is named by a hash of what it is built from, so it is built once per machine, and an equal name is
an equal recipe. What a task brings is read from its data by name, so that any task class can bring one.
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
from typing import Any

from agent_sandbox.file_lock import locked_async, private_directory
from opencode_rubrics.cache import cache_root
from verifiers.v1.errors import SandboxError, TaskError
from verifiers.v1.runtimes import RuntimeConfig
from verifiers.v1.task import Task
from verifiers.v1.utils.aio import run_shielded

_ENGINES = ("podman", "docker")

_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
"""Debian's Python 3.11.2 has no filters; what is extracted was packed from the task's own folder."""


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
            f"task {task.data.id or task.data.idx} brings a Dockerfile, and the {config.type} runtime builds none: use "
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
    return kind if kind in _ENGINES and getattr(config, "host", None) is None else None


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
