"""Sandboxes of tasks as rollouts have them, without an agent: set up, worked in, scored."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from opencode_rubrics import AnyTrace, workdir_of
from rollout_sandbox.confined import Bind
from rollout_sandbox.toolbox.scoring import attach
from verifiers.v1.agent import Agent
from verifiers.v1.clients import EvalClientConfig, ModelContext
from verifiers.v1.rollout import resolve_agent_runtime
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.env import CliAgentEnv, CliAgentEnvConfig
from opencode_env.cli_agent.process_fence import ProcessFence, agents_view
from opencode_env.cli_agent.rollout import Rollout
from opencode_env.cli_agent.rollout_limit import DEFAULT_ROLLOUT_SECONDS
from opencode_env.taskset.gold.solution import SOLUTION, trace_for


@dataclass(frozen=True)
class Box:
    """One task's sandbox behind its setup."""

    task: Task[Any, Any, Any]
    runtime: Runtime
    """As scoring sees it."""
    agents: Runtime
    """As the agent's programs see it."""
    trace: AnyTrace
    rollout: Rollout
    fence: ProcessFence
    agent_seconds: float
    scoring_seconds: float | None
    workdir: str

    async def score(self, task: Task[Any, Any, Any] | None = None) -> AnyTrace:
        """End what runs for the agent, and score what is there now, on a trace of its own.

        Raises:
            RolloutError: it cannot be scored.
            ScoringTimeout: it took longer than scoring may.
        """
        await self.fence.end()
        assert self.trace.agent is not None
        trace = trace_for(task or self.task, self.trace.agent.config)
        trace.root_reply = self.trace.root_reply
        hooks: dict[str | type, Any] = {"trace": trace, "runtime": self.runtime, "deployment": None}
        await invoke(self.task.finalize, hooks)
        attach(self.rollout, trace)
        async with self.rollout.time(self.scoring_seconds):
            await invoke((task or self.task).score, hooks)
        return trace


class CheckEnv(CliAgentEnv[CliAgentEnvConfig]):
    """`CliAgentEnv` as far as it is needed where no agent is run."""

    def __init__(self, config: CliAgentEnvConfig) -> None:
        super().__init__(config)
        self._solutions: WeakKeyDictionary[Agent, Path] = WeakKeyDictionary()

    async def local_binds(self, agent: Agent) -> list[Bind]:
        """No agent's program is shown, but the solution that is to be applied."""
        solution = self._solutions.get(agent)
        return [] if solution is None else [Bind(solution, SOLUTION)]

    @asynccontextmanager
    async def box(self, task: Task[Any, Any, Any], solution: Path | None = None) -> AsyncIterator[Box]:
        """A sandbox of the task, with its setup behind it; the confined one shows the directory of a `solution`.

        Raises:
            RolloutError: it did not start, or its setup failed.
        """
        agent = self._episode_agents(ModelContext(model="none", client=EvalClientConfig()), [], None, None).agent
        if solution is not None:
            self._solutions[agent] = solution
        trace = trace_for(task, agent.config)
        seconds = agent.timeout.rollout or task.data.timeout.agent or DEFAULT_ROLLOUT_SECONDS
        scoring = agent.timeout.scoring if agent.timeout.scoring is not None else task.data.timeout.scoring
        rollout = Rollout()
        rollout.begin(trace)
        async with (
            self._prime_queue.place(agent.runtime_config) as rollout.start,
            self._sandbox(task, agent, rollout) as runtime,
        ):
            await invoke(task.setup, {"trace": trace, "runtime": runtime, "deployment": None})
            fence = ProcessFence(runtime)
            await fence.mark()
            seen = agents_view(await resolve_agent_runtime(runtime, task.data.agent_user))
            yield Box(task, runtime, seen, trace, rollout, fence, seconds, scoring, workdir_of(trace))
