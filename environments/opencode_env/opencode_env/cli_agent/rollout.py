"""The state of one rollout: all that its parts must find of each other between its first and its last moment.

The environment makes it, hands it on, and ends it once. Where verifiers calls our code with a trace and nothing else (a
server that registers a session, a harness, a task), `rollout_of` finds it by that trace; it is attached in one place,
`rollout_sandbox.toolbox.scoring`, which scoring shares. A rollout of another environment has a state too, which nobody
ends: it goes with its trace.

What belongs to a rollout and not to a single call is here; nothing is kept by the id of a trace or in a
context variable.
"""

import math
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rollout_sandbox.outcomes import Outcome
from rollout_sandbox.prime.queue import StartRecord
from rollout_sandbox.toolbox.scoring import Scoring, attach, attached
from verifiers.v1.agent import Agent
from verifiers.v1.errors import RolloutError
from verifiers.v1.harness import HarnessSession

from opencode_env.cli_agent.interception.callers import AgentProgram, SubRollout
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.interception.tunnel import OpenTunnel
from opencode_env.cli_agent.outcomes import all_outcomes
from opencode_env.cli_agent.traces import AnyTrace


class RolloutFeature:
    """A feature in one rollout, which is told of these events; a subclass overrides what it needs."""

    def begun(self, trace: AnyTrace, sub: SubRollout | None) -> None:
        """The rollout has its trace, and its sub side where it has one; nothing was played yet."""

    def registered(self, gateway: Gateway) -> None:
        """Its server knows it, and can be given steps for its calls (`Gateway.add_step`)."""

    async def agent_ended(self) -> None:
        """Its agent has ended, or was never started. May come several times."""


@dataclass(frozen=True)
class Patience:
    """Tells how long an agent's program bears a failing endpoint; a harness that knows has a `patience()`."""

    sends: int = 2
    """How often it sends one call that may pass, before it gives up."""
    seconds: float = math.inf
    """How long it waits for one answer."""


@dataclass(frozen=True)
class PlayedBefore:
    """The part of a rollout that was played before one that goes on from its middle."""

    place: Path
    """Where that stands."""
    conversation: str
    """In which the agent goes on."""
    seconds: float
    """That the agent had."""
    nodes: int
    """With which the trace begins."""
    calls: int
    """With which the trace begins."""
    resumed: bool
    """Whether it is the same rollout, whose process ended."""


class Rollout(Scoring):
    """One rollout that ends in one of `outcomes`, by default of those of any environment; see the attributes for who
    sets what."""

    def __init__(self, outcomes: Sequence[Outcome] | None = None) -> None:
        super().__init__()
        self.trace: AnyTrace | None = None
        """From `begin` on, when verifiers mints it."""
        self.start: StartRecord | None = None
        """Its wait for a place at Prime, and the start of its sandbox there."""
        self.outcomes = all_outcomes() if outcomes is None else outcomes
        self.outcome: Outcome | None = None
        """That of the agent's last run, once it is known."""
        self.program = AgentProgram()
        """The agent's own program, as the server knows it."""
        self.session: HarnessSession | None = None
        """The agent's, which the guard closes before anything of the task sees the sandbox."""
        self.patience = Patience()
        """That of the agent's program, which the guard sets with the session."""
        self.agent_directory = ""
        """What the agent's harness has made in the sandbox, for its own cleanup."""
        self.gateway: Gateway | None = None
        """Set by the server that serves the rollout; None behind verifiers' own."""
        self.tunnel: OpenTunnel | None = None
        """The tunnel from the sandbox to that server while it is registered there; None where none can be lost."""
        self.features: list[RolloutFeature] = []
        """What is told of its events; features add theirs before anything of it is made (`Feature.playing`)."""
        self.before: PlayedBefore | None = None
        """Set by a feature, too; None where it is played from its beginning."""
        self.outside = ""
        """What holds state of it outside of its sandbox, in words; empty where only tool servers may."""
        self.summary_seat: Agent | None = None
        """Whose model makes its summaries; None: the one that is summarised."""
        self.make_sub: Callable[[AnyTrace], SubRollout] | None = None
        """Makes the sub side, in an environment that has one."""
        self.sub: SubRollout | None = None
        """The sub side, from `begin` on."""

    def begin(self, trace: AnyTrace) -> None:
        """Take up the trace that verifiers has minted for this rollout."""
        self.trace = trace
        attach(self, trace)
        if self.make_sub is not None:
            self.sub = self.make_sub(trace)
        for feature in self.features:
            feature.begun(trace, self.sub)

    def registered(self, gateway: Gateway) -> None:
        """Take up what its server has made for it."""
        self.gateway = gateway
        for feature in self.features:
            feature.registered(gateway)

    async def agent_ended(self) -> None:
        """Tell the features that its agent's program has ended; each is told, and then the first error is raised."""
        errors = []
        for feature in self.features:
            try:
                await feature.agent_ended()
            except Exception as error:  # noqa: BLE001 - raised below
                errors.append(error)
        if errors:
            raise errors[0]

    async def end(self) -> None:
        """End what still serves the rollout; what came of it stays. Idempotent."""
        try:
            if self.sub is not None:
                await self.sub.end()
            await self.agent_ended()
        finally:
            self.session = self.gateway = self.tunnel = self.boxes = None

    @property
    def live_sub(self) -> SubRollout | None:
        """The sub side, until it has ended."""
        return None if self.sub is None or self.sub.ended else self.sub

    @asynccontextmanager
    async def ending_sub_calls(self) -> AsyncIterator[None]:
        """End the sub calls on the way out, while the sub session can still record them."""
        try:
            yield
        finally:
            if self.sub is not None:
                await self.sub.end()

    @property
    def first_conversation(self) -> str | None:
        """The conversation of the first call, where that bore the mark of the agent's own program."""
        return None if self.gateway is None else self.gateway.fixed_prompts.first

    @property
    def first_node(self) -> int:
        """Number of the first node of its trace that is its own."""
        return 0 if self.before is None else self.before.nodes

    @property
    def first_call(self) -> int:
        """Number of its own first model call."""
        return 0 if self.before is None else self.before.calls

    def take_failure(self) -> RolloutError | None:
        """Take from the main session what it holds for the cause of its end: verifiers would prefer it to all else."""
        if self.gateway is None:
            return None
        found, self.gateway.main.error = self.gateway.main.error, None
        return found

    def program_load(self, start: float, end: float) -> int:
        """Return how many requests of the agent's programs were at the endpoint between two moments."""
        return 0 if self.gateway is None else self.gateway.load.between(start, end)


def rollout_of(trace: AnyTrace) -> Rollout:
    """The state of the rollout that a trace is of; made now where no environment of ours has made it."""
    found = attached(trace)
    if not isinstance(found, Rollout):
        found = Rollout()
        found.begin(trace)
    return found
