"""Whether the time limits of a task and its seat fit together."""

from collections.abc import Iterator
from dataclasses import dataclass

LEAST_AGENT_SECONDS = 10.0
"""An agent needs one to three seconds to its first model call, and has done nothing then."""
_NEARLY = 0.8


@dataclass(frozen=True)
class Limits:
    """Seconds; None: no limit."""

    agent: float | None
    """That the task gives the agent."""
    seat: float | None
    """That the seat gives it, which goes before."""
    scoring: float | None
    longest: float
    """That the task's own commands may take to score it."""
    setup: float | None
    longest_setup: float
    episode: float | None


def misfits(limits: Limits) -> Iterator[str]:
    """What does not fit, before anything has run."""
    agent = limits.agent if limits.seat is None else limits.seat
    if agent is not None and agent < LEAST_AGENT_SECONDS:
        yield f"the agent has {agent:g} s, which is over before it has done anything"
    if limits.agent is not None and limits.seat is not None and limits.seat < limits.agent:
        yield f"the task gives the agent {limits.agent:g} s, and --env.agent.timeout.rollout {limits.seat:g} s"
    if limits.scoring is not None and limits.longest > limits.scoring:
        yield f"scoring has {limits.scoring:g} s, and the task's commands may take {limits.longest:g} s"
    if limits.setup is not None and limits.longest_setup > limits.setup:
        yield f"setup has {limits.setup:g} s, and the task's commands may take {limits.longest_setup:g} s"
    parts = (agent or 0) + (limits.scoring or limits.longest)
    if limits.episode is not None and limits.episode < parts:
        yield f"an episode has {limits.episode:g} s, and agent and scoring may take {parts:g} s"


def tight(seconds: float, limit: float | None, what: str) -> Iterator[str]:
    """That a sound solution needed nearly all of a limit."""
    if limit is not None and seconds > _NEARLY * limit:
        yield f"{what} took {seconds:.1f} s of its {limit:g} s with the gold solution"
