"""The container of a rollout: of our runtimes for podman and Prime, else of verifiers' own; the task's image first."""

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from agent_sandbox.podman import is_ours, provision_podman
from agent_sandbox.prime import lifetime_minutes, provision_prime
from verifiers.v1.agent import Agent
from verifiers.v1.runtimes import PrimeConfig, Runtime
from verifiers.v1.task import Task
from verifiers.v1.utils.compile import resolve_runtime_config

from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.task_image import build_task_image


@contextlib.asynccontextmanager
async def provision_container(task: Task[Any, Any, Any], agent: Agent, rollout: Rollout) -> AsyncIterator[Runtime]:
    """A started container of the seat's runtime, removed on exit.

    Raises:
        SandboxError: its image could not be built, or it could not be started.
        TaskError: its image is to be built, and this runtime builds none.
    """
    config = resolve_runtime_config(agent.runtime_config, task)
    await build_task_image(config, task)
    if isinstance(config, PrimeConfig):
        lifetime = lifetime_minutes(_stages(task, agent))
        async with provision_prime(config, lifetime, task.runtime_env(), rollout.start) as sandbox:
            yield sandbox
        return
    if not is_ours(config):
        async with agent.provision(task) as runtime:
            yield runtime
        return
    shown = getattr(agent.harness, "container_binds", None)
    async with provision_podman(config, [] if shown is None else shown(), task.runtime_env()) as box:
        yield box


def _stages(task: Task[Any, Any, Any], agent: Agent) -> list[float | None]:
    """The seconds that the stages of a rollout may take; that of scoring as it was before `take_scoring_limit`."""
    own, tasks = agent.timeout, task.data.timeout
    scoring = agent.config.timeout.scoring
    pairs = [(own.setup, tasks.setup), (own.rollout, tasks.agent), (own.finalize, tasks.finalize)]
    return [first if first is not None else second for first, second in [*pairs, (scoring, tasks.scoring)]]
