"""What a task directory adds to a row, the field `folder` of the task's data, and waiting until its sandbox is ready.

The health check is Harbor's `[environment.healthcheck]`, which follows Docker's.
"""

import asyncio
import time

import verifiers.v1 as vf
from opencode_rubrics import require_alive, run_command
from pydantic import BaseModel, Field


class Healthcheck(BaseModel, frozen=True, extra="ignore"):
    """A command that exits 0 once the sandbox is ready. Durations in seconds."""

    command: str = Field(min_length=1)
    interval_sec: float = Field(5.0, ge=0, allow_inf_nan=False)
    timeout_sec: float = Field(30.0, gt=0, allow_inf_nan=False)
    start_period_sec: float = Field(0.0, ge=0, allow_inf_nan=False)
    """How long failures do not count."""
    start_interval_sec: float = Field(5.0, ge=0, allow_inf_nan=False)
    retries: int = Field(3, ge=1)
    """Failures in a row that end the wait."""


async def wait_until_healthy(runtime: vf.Runtime, check: Healthcheck, workdir: str) -> None:
    """Return once the command has passed; a `TaskError` where it failed `retries` times after the start period."""
    started, failures = time.monotonic(), 0
    while True:
        starting = time.monotonic() - started < check.start_period_sec
        result = await run_command(runtime, check.command, workdir=workdir, timeout=check.timeout_sec)
        if result.ok:
            return
        failures += not starting
        if failures >= check.retries:
            await require_alive(runtime, "waiting for its healthcheck")
            raise vf.TaskError(
                f"the sandbox is not ready: healthcheck {check.command!r} failed {failures} times ({result.ending()})"
            )
        await asyncio.sleep(check.start_interval_sec if starting else check.interval_sec)


class ImageBuild(BaseModel, frozen=True):
    """A container image that is built on the machine that runs the container."""

    context: str
    """The packed directory with the Dockerfile."""
    timeout: float
    """Seconds."""


class TaskFolder(BaseModel, frozen=True):
    """Tells how the sandbox of a task directory is made ready."""

    files: str | None = None
    """A packed directory that is put into the work directory."""
    build: ImageBuild | None = None
    """How the task's image is made; None where it is pulled, or there is none."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of every command."""
    healthcheck: Healthcheck | None = None
