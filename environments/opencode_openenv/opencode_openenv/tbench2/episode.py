"""One task in one sandbox, from its setup to its score.

Invariant: what scores is never in the sandbox before `evaluate`, which first ends whatever the agent started; and the
sandbox is removed whatever happened.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

import verifiers.v1 as vf
from opencode_env.cli_agent.features import ordered_task
from opencode_env.cli_agent.process_fence import ProcessFence
from opencode_env.taskset import OpenCodeTask
from opencode_rubrics import AnyTrace
from rollout_sandbox.toolbox.scoring import Scoring, attach
from verifiers.v1.rollout import resolve_agent_runtime

from opencode_openenv.tbench2.place import Place, workdir_of_task
from opencode_openenv.tbench2.terminals import Terminals

WRITE_FILE_SECONDS = 120.0
"""How long `write_file` may take."""


@dataclass(frozen=True)
class Score:
    reward: float
    exit_code: int | None
    """Of the test script; None if it never ran."""
    problem: str
    """Why the reward is a 0 although the tests gave none."""
    warning: str
    """That the tests lacked a program."""
    output: str


class Episode:
    """A started sandbox with a task in it.

    Args:
        task: one of a task directory.
    """

    def __init__(self, task: OpenCodeTask, place: Place) -> None:
        self.task = task
        self._place = place
        recorded: vf.TraceTask[Any] = vf.TraceTask(type="Task", data=task.data, key=task.key, hash="")
        self._trace: AnyTrace = vf.Trace(task=recorded, agent=vf.AgentInfo(config=vf.AgentConfig()))
        self._resources = AsyncExitStack()
        self._box: vf.Runtime
        self._agents_box: vf.Runtime
        self._fence: ProcessFence
        self.terminals: Terminals
        self.over = False
        """Whether it is scored, or was to be: nothing more is done for the agent then."""

    async def start(self) -> None:
        """Provision the sandbox and make it ready.

        Raises:
            SandboxError: it could not be started.
            TaskError: its setup failed, or it is not a sandbox for this task.
        """
        try:
            self._box = await self._resources.enter_async_context(self._ready_box(self.task))
            self._fence = ProcessFence(self._box)
            await self._fence.mark()
            self._agents_box = await resolve_agent_runtime(self._box, self.task.data.agent_user)
            self.terminals = Terminals(self._agents_box)
        except BaseException:
            await self.close()
            raise

    @contextlib.asynccontextmanager
    async def _ready_box(self, task: OpenCodeTask) -> AsyncIterator[vf.Runtime]:
        async with self._place.box(task) as box:
            await task.setup(self._trace, box)
            yield box

    async def write_file(self, path: str, content: str) -> None:
        """Write a file of the sandbox, with its parents.

        Raises:
            SandboxError: it cannot be written.
            ValueError: what stands there takes no content in `WRITE_FILE_SECONDS`, as a FIFO that nobody reads.
        """
        absolute = path if path.startswith("/") else f"{workdir_of_task(self.task)}/{path}"
        parent = absolute.rpartition("/")[0] or "/"
        try:
            async with asyncio.timeout(WRITE_FILE_SECONDS):
                await self._agents_box.run(["mkdir", "-p", "--", parent], {})
                await self._agents_box.write(absolute, content.encode())
        except TimeoutError as error:
            raise ValueError(f"{path!r} could not be written within {WRITE_FILE_SECONDS:g} s") from error

    async def evaluate(self) -> Score:
        """Score what is in the sandbox.

        Raises:
            SandboxError: the sandbox is gone, or the agent's processes could not be ended.
            ScoringError: the tests give no verdict, in an untouched copy of the sandbox either.
        """
        self.over = True
        await self.terminals.end_all()
        await self._fence.end()
        attach(Scoring(lambda order: self._ready_box(ordered_task(self.task, order))), self._trace)
        await self.task.score(self._trace, self._box)
        run: dict[str, Any] = self._trace.info["tests"]
        said = "".join(str(run.get(name, "")) for name in ("stdout", "stderr"))
        problem, warning = str(run["problem"]), str(run["warning"])
        return Score(float(self._trace.reward), run.get("exit_code"), problem, warning, said)

    async def close(self) -> None:
        """Remove the sandbox with all that runs in it; idempotent."""
        await self._resources.aclose()
