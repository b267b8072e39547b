"""`OpenCodeRLMEnv`: an OpenCode agent whose sub-LLM calls have a seat, a trace and budgets of their own."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from opencode_env.cli_agent.env import CliAgentEnv
from opencode_env.cli_agent.interception import SubRollout
from opencode_env.cli_agent.rollout import Rollout, rollout_of
from opencode_env.taskset import OpenCodeTask, OpenCodeTaskset
from rollout_sandbox.compat import drop_with
from verifiers.v1.agent import Agents
from verifiers.v1.episode import Episode
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_rlm.config import OpenCodeRLMEnvConfig

logger = logging.getLogger("verifiers.v1.opencode_rlm")


class OpenCodeRLMEnv(CliAgentEnv[OpenCodeRLMEnvConfig]):
    """Plays the main agent in a sandbox and serves its sub-LLM calls from the `sub` seat."""

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset({"sub", "user"})

    async def setup(self, agents: Agents) -> None:
        """Decide whether the sub trace trains; a user's never does."""
        await super().setup(agents)
        agents.sub.trainable = self.config.include_sub_llm_in_trajectory

    async def run_agent(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout) -> None:
        """Run the main agent with a sub side that lives as long as its run."""
        rollout.make_sub = lambda main: SubRollout(main, agents.sub, self.config.sub_settings)
        await super().run_agent(task, agents, box, rollout)
        if rollout.sub is not None and rollout.sub.trace.calls:
            logger.info("%s", _describe(rollout.sub))

    async def finalize(self, task: Task[Any, Any, Any], episode: Episode[Any, Any, Any]) -> None:
        """Put the sub traces into the episode, with the standing of their main traces."""
        for main in list(episode.traces):
            side = rollout_of(main).sub
            if side is None or not side.trace.calls:
                continue
            sub = side.trace
            if not main.ok:
                sub.ok, sub.errors, sub.stop_condition = False, list(main.errors), main.stop_condition
            elif self.config.include_sub_llm_in_trajectory:
                sub.rewards = dict(main.rewards)
            drop_with(sub, main)
            episode.traces.append(sub)


def _describe(side: SubRollout) -> str:
    metrics = side.main.metrics
    names = ("sub_llm_calls", "sub_llm_errors", "sub_llm_max_parallel", "sub_llm_prompt_tokens", "sub_llm_seconds")
    counts = " ".join(f"{name.removeprefix('sub_llm_')}={metrics[name] or 0:g}" for name in names)
    return f"sub-LLM calls: trace={side.main.id} {counts} model={side.session.ctx.model}"


_SAMPLES = Path(__file__).parent / "samples" / "needles.jsonl"


class NeedleTaskset(OpenCodeTaskset):
    """`OpenCodeTaskset` whose own sample set is the needles; every other dataset works as there."""

    def load(self) -> Iterator[OpenCodeTask]:
        """Yield the tasks of the configured dataset, of the needles without one."""
        if self.config.dataset is None:
            self.config = self.config.model_copy(update={"dataset": str(_SAMPLES)})
        yield from super().load()
