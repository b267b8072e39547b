"""The task directories beside this file, and one rollout of each without a model: setup, an agent's script, scoring."""

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from agent_sandbox.confined import LocalSandboxConfig, provision_confined
from agent_sandbox.toolbox.scoring import BoxOrder, Scoring, attach
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.taskset import OpenCodeTask
from opencode_rubrics import AnyTrace, workdir_of

from tests.support.places import podman_box
from tests.taskset.files import tasks

FOLDERS = Path(__file__).parent
SOLVED = sorted(path.name for path in (FOLDERS / "tasks").iterdir())
BROKEN = FOLDERS / "broken" / "no-verdict"
CONTAINERS = FOLDERS / "containers"


def folder_task(path: Path, **options: Any) -> OpenCodeTask:
    """The task of one directory."""
    (found,) = tasks(path, **options)
    return found


def oracle(path: Path) -> str:
    """The commands that solve it."""
    return (path / "solution" / "solve.sh").read_text()


def trace_of(task: OpenCodeTask) -> AnyTrace:
    """A trace of the task before anything happened, whose work directory is the task's or /app."""
    recorded: vf.TraceTask[Any] = vf.TraceTask(type="Task", data=task.data, key="k", hash="h")
    return vf.Trace(task=recorded, agent=vf.AgentInfo(config=vf.AgentConfig()))


def confined_box(task: OpenCodeTask) -> AbstractAsyncContextManager[vf.Runtime]:
    """A confined sandbox for the task."""
    workdir = task.data.workdir or "/app"
    return provision_confined(LocalSandboxConfig(), env=task.runtime_env(), workdir=workdir)


@asynccontextmanager
async def container_box(task: OpenCodeTask, image: str) -> AsyncIterator[vf.Runtime]:
    """A podman container for the task."""
    async with podman_box(task.data.image or image) as box:
        yield box.with_env(task.runtime_env())


async def played(task: OpenCodeTask, script: str, image: str | None = None, *, copies: bool = True) -> AnyTrace:
    """The scored trace of an agent that runs one script with bash: confined, or in a container of this image.

    With `copies`, scoring gets second sandboxes as in our environment.
    """
    trace = trace_of(task)

    def provision() -> AbstractAsyncContextManager[vf.Runtime]:
        return confined_box(task) if image is None else container_box(task, image)

    @asynccontextmanager
    async def spare(order: BoxOrder) -> AsyncIterator[vf.Runtime]:
        async with provision() as box:
            await task.setup(trace, box)
            yield box

    async with provision() as box:
        await task.setup(trace, box)
        fence = ProcessFence(box)
        await fence.mark()
        done = await box.run(["sh", "-c", 'cd "$1" && exec bash -c "$2"', "agent", workdir_of(trace), script], {})
        trace.info["agent_exit"] = done.exit_code, done.stdout, done.stderr
        await fence.end()
        if copies:
            attach(Scoring(spare), trace)
        await task.score(trace, box)
    return trace
