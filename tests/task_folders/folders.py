"""The task directories beside this file, and one rollout of each without a model: setup, an agent's script, scoring."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import verifiers.v1 as vf
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.taskset import OpenCodeTask
from opencode_rubrics import AnyTrace, workdir_of
from rollout_sandbox.confined import LocalSandboxConfig, provision_confined
from rollout_sandbox.toolbox.scoring import Scoring, SecondSandboxOptions, attach

from tests.rubrics.conftest import trace_of
from tests.support.places import podman_box
from tests.taskset.files import tasks

FOLDERS = Path(__file__).parent
COUNT = FOLDERS / "tasks" / "count-lines"
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


@asynccontextmanager
async def box_for(task: OpenCodeTask, image: str | None) -> AsyncIterator[vf.Runtime]:
    """A sandbox for the task: confined, or a container of the task's image, else of this one."""
    env, workdir = task.runtime_env(), task.data.workdir or "/app"
    if image is None:
        async with provision_confined(LocalSandboxConfig(), env=env, workdir=workdir) as box:
            yield box
    else:
        async with podman_box(task.data.image or image) as container:
            yield container.with_env(env)


async def played(task: OpenCodeTask, script: str, image: str | None = None, *, copies: bool = True) -> AnyTrace:
    """The scored trace of an agent that runs one script with bash: confined, or in a container of this image.

    With `copies`, scoring gets second sandboxes as in our environment.
    """
    trace = trace_of(task.data)

    @asynccontextmanager
    async def spare(order: SecondSandboxOptions) -> AsyncIterator[vf.Runtime]:
        async with box_for(task, image) as box:
            await task.setup(trace, box)
            yield box

    async with box_for(task, image) as box:
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
