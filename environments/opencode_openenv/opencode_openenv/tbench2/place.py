"""Where a task's sandbox is: the confined local one, or a container of any of verifiers' runtimes."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from opencode_env.cli_agent.containers import build_task_image
from opencode_env.cli_agent.local_runtime import provision_local
from rollout_sandbox.compat import asked_network
from rollout_sandbox.confined import LocalSandboxConfig, require_private_workdir
from rollout_sandbox.podman import is_ours, provision_podman
from rollout_sandbox.toolbox.workdir import DEFAULT_WORKDIR
from verifiers.v1.errors import TaskError
from verifiers.v1.runtimes import Runtime, RuntimeConfig, SubprocessConfig, provision_runtime
from verifiers.v1.task import Task
from verifiers.v1.utils.compile import resolve_runtime_config


@dataclass(frozen=True)
class Place:
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
