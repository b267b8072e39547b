"""What a task directory adds to a row: the field `folder` of the task's data."""

from pydantic import BaseModel, ConfigDict, Field

from opencode_env.taskset.folders.healthcheck import Healthcheck


class ImageBuild(BaseModel):
    """A container image that is built on the machine that runs the container."""

    model_config = ConfigDict(frozen=True)

    context: str
    """The packed directory with the Dockerfile."""
    timeout: float
    """Seconds."""


class TaskFolder(BaseModel):
    """How the sandbox of a task directory is made ready."""

    model_config = ConfigDict(frozen=True)

    files: str | None = None
    """A packed directory that is put into the work directory."""
    build: ImageBuild | None = None
    """How the task's image is made; None where it is pulled, or there is none."""
    env: dict[str, str] = Field(default_factory=dict)
    """Variables of every command."""
    healthcheck: Healthcheck | None = None
