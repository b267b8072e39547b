"""`OpenCodeRLMEnv`: an OpenCode agent whose sub-LLM calls have a seat, a trace and budgets of their own."""

import logging
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from opencode_env.cli_agent.interception import SubRollout
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.user_simulation.env import ConversingEnv
from opencode_rubrics.verifiers_versions import drop_with
from verifiers.v1.agent import Agents
from verifiers.v1.episode import Episode
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_rlm.config import OpenCodeRLMEnvConfig

logger = logging.getLogger("verifiers.v1.opencode_rlm")


class OpenCodeRLMEnv(ConversingEnv[OpenCodeRLMEnvConfig]):
    """Plays the main agent in a sandbox and serves its sub-LLM calls from the `sub` seat."""

    SEATS_WITHOUT_SANDBOX: ClassVar[frozenset[str]] = frozenset({"sub"}) | ConversingEnv.SEATS_WITHOUT_SANDBOX

    def __init__(self, config: OpenCodeRLMEnvConfig) -> None:
        super().__init__(config)
        self._sub_traces: dict[str, AnyTrace] = {}
        """Finished sub traces by main trace id, between `run` and `finalize` of an episode."""

    async def setup(self, agents: Agents) -> None:
        """Decide whether the sub trace trains; a user's never does."""
        await super().setup(agents)
        agents.sub.trainable = self.config.include_sub_llm_in_trajectory

    async def run_agent(
        self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, on_trace: Callable[[AnyTrace], None]
    ) -> None:
        """Run the main agent with a sub side that lives as long as its run."""
        sides: list[SubRollout] = []

        def minted(main: AnyTrace) -> None:
            sides.append(SubRollout(main, agents.sub, self.config.sub_settings))
            sides[-1].begin()
            on_trace(main)

        try:
            await super().run_agent(task, agents, box, minted)
        finally:
            for side in sides:
                await side.end()
        side = sides[-1]
        if side.trace.calls:
            self._sub_traces[side.main.id] = side.trace
            # An episode that fails after its agent is never finalized.
            weakref.finalize(side.main, self._sub_traces.pop, side.main.id, None)
            logger.info("%s", _describe(side))

    async def finalize(self, task: Task[Any, Any, Any], episode: Episode[Any, Any, Any]) -> None:
        """Put the sub traces into the episode, with the standing of their main traces."""
        for main in list(episode.traces):
            sub = self._sub_traces.pop(main.id, None)
            if sub is None:
                continue
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
