"""Summaries by another model as a feature of an environment: the seat `summary` sums up full histories.

What is sampled there is context of what the agent samples, and never trains; what fails there is an error of the
rollout. The interception leads a summary that is due to that seat (`choose_summariser`), and nothing else.
"""

from typing import Any

from verifiers.v1.agent import Agents
from verifiers.v1.configs.agent import AgentConfig
from verifiers.v1.configs.harness import HarnessConfig
from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task

from opencode_env.cli_agent.features import Feature, Run
from opencode_env.cli_agent.rollout import Rollout

_LIMITS = ("max_turns", "max_input_tokens", "max_output_tokens", "max_total_tokens")


def is_used(seat: AgentConfig) -> bool:
    """Whether the seat says which model, endpoint or sampling it has."""
    return any(value is not None for value in (seat.model, seat.client, seat.sampling))


def require_compaction(seat: AgentConfig, harness: HarnessConfig | None) -> None:
    """Refuse a seat that sums up nothing, or limits what is part of a rollout.

    Raises:
        ValueError: the harness does not summarise, or the seat has a limit on turns or tokens.
    """
    if not is_used(seat):
        return
    if getattr(harness, "disable_compaction", True):
        raise ValueError("--env.summary has no effect without --env.agent.harness.disable-compaction false")
    if limits := [name for name in _LIMITS if getattr(seat, name) is not None]:
        raise ValueError(f"--env.summary.{limits[0].replace('_', '-')} does not apply: a summary is part of a rollout")


class SummarySeat(Feature):
    """Has the seat make the summaries of each rollout, where it says something of its own."""

    def __init__(self, seat: AgentConfig) -> None:
        self._used = is_used(seat)

    def setup(self, agents: Agents) -> None:
        """Let nothing train that is sampled there."""
        agents.summary.trainable = False

    async def run(self, task: Task[Any, Any, Any], agents: Agents, box: Runtime, rollout: Rollout, run: Run) -> None:
        """Run the agent with its summaries from there."""
        rollout.summary_seat = agents.summary if self._used else None
        await run(task)
