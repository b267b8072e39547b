"""What the sandbox's limits and its end did to an agent, on its record and in its reward.

Invariant: an agent whose processes outran their end is rewarded nothing and is not an error: it was the agent's doing,
and everything in its sandbox ended before anything was scored. So is one whose programs used the time of scoring.
"""

import contextlib
from typing import Any, Protocol, runtime_checkable

from verifiers.v1.errors import SandboxError
from verifiers.v1.runtimes import Runtime

from opencode_env.cli_agent.classification import CountsLimitKills
from opencode_env.cli_agent.traces import AnyTrace, agent_record

_OVERRUN = "scoring_overrun"
"""Key of the agent's record: how its programs used up the time of scoring."""


@runtime_checkable
class SandboxWithLimits(CountsLimitKills, Protocol):
    """A runtime that knows what its limits did to the agent."""

    @property
    def agent_survived(self) -> bool: ...


async def limits_met(runtime: Runtime) -> dict[str, Any]:
    """Return the agent's record of it: whether it `outlived` its end, and its `limit_kills`, where that is known."""
    if not isinstance(runtime, SandboxWithLimits):
        return {}
    found: dict[str, Any] = {"outlived": runtime.agent_survived}
    with contextlib.suppress(SandboxError):  # the sandbox is gone, which is said elsewhere
        found["limit_kills"] = await runtime.limit_kills()
    return found


def outlived_its_end(trace: AnyTrace) -> bool:
    """Whether the agent's processes outran their end, so that everything in the sandbox was ended with them."""
    return bool(agent_record(trace).get("outlived"))


def note_overrun(trace: AnyTrace, reason: str) -> None:
    """Note that the agent's programs used up the time of scoring."""
    agent_record(trace)[_OVERRUN] = reason


def zero_spoilt(trace: AnyTrace) -> None:
    """Reward nothing where the agent's processes outran their end, or the time of scoring, whatever it has found."""
    if outlived_its_end(trace) or _OVERRUN in agent_record(trace):
        for name, reward in trace.rewards.items():
            trace.record_reward(name, 0.0, 1.0 if reward is None else reward.weight)
