"""A rollout that continues a kept turn: what it begins with, and what is said of it at its end.

Invariant: nothing that was sampled before the turn trains again with what is sampled behind it, and nothing at all
trains where the agent's first request is not the one that the kept turn waited for, or where the conversation had
forked by then: an agent that rewrites its own store does not choose what it trains on.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opencode_runs.command import BadInputError
from opencode_runs.traces.record import Origin
from opencode_runs.turns.kept import ANSWER, FILES, TRACE, KeptTurn, TurnRow, read_turn
from rollout_sandbox.toolbox.kept_files import require_whole
from verifiers.v1.errors import TaskError
from verifiers.v1.serve.delta import unpack

from opencode_env.cli_agent.interception.sub_rollout import SubRollout
from opencode_env.cli_agent.traces import AnyTrace, lineage
from opencode_env.cli_agent.turns.trace_state import SUB, mask, seed, unpacked

BRANCH = "branch"
"""Key in `trace.info` with the kept turn that a rollout was continued from (see `Origin`), whether its agent went on
with the same request (`same_request`), and whether the conversation had forked by then (`forked`)."""


@dataclass
class Continued:
    """A kept turn that a rollout goes on from."""

    turn: KeptTurn
    state: dict[str, Any]
    resumed: bool = False
    """Whether it is the same rollout, whose process ended."""
    seeded: int = 0
    """Nodes that its trace began with."""
    seeded_sub: int = 0
    """Nodes that its sub trace began with."""
    leaf: int | None = None
    same_request: bool | None = field(default=None, init=False)
    """Whether the first request was the turn's; None before it came."""

    @classmethod
    def named(cls, row: TurnRow, versions: dict[str, str], runtime: str) -> "Continued":
        """The turn that a dataset's row names, to be continued by what has these versions in a sandbox of this type.

        Raises:
            TaskError: it cannot be seen here, is another one, or cannot be continued.
        """
        try:
            turn = read_turn(Path(row.kept_turn))
        except BadInputError as error:
            raise TaskError(f"the task names a kept turn that this process cannot read: {error}") from None
        if turn.digest != row.digest:
            raise TaskError(f"kept turn {row.kept_turn} is not the one that the task names: its request is another")
        return cls.of(turn, versions, runtime)

    @classmethod
    def of(cls, turn: KeptTurn, versions: dict[str, str], runtime: str, *, resumed: bool = False) -> "Continued":
        """A turn, if it can be continued.

        Raises:
            TaskError: it cannot.
        """
        if turn.unrestorable is not None or turn.session_id is None:
            raise TaskError(f"kept turn {turn.place} cannot be continued: {turn.unrestorable or 'it names no session'}")
        if turn.runtime != runtime:
            raise TaskError(f"kept turn {turn.place} is of sandbox {turn.runtime} and cannot be put into {runtime}")
        for name in ("agent", "verifiers"):
            was, now = turn.versions.get(name), versions.get(name)
            if was != now:
                raise TaskError(f"kept turn {turn.place} was kept under {name} {was} and cannot go on under {now}")
        try:
            state = unpacked((turn.place / TRACE).read_bytes())
        except (OSError, ValueError) as error:
            raise TaskError(f"kept turn {turn.place}: {TRACE} cannot be read: {error}") from None
        try:
            require_whole(turn.place / FILES)
        except ValueError as error:
            raise TaskError(f"kept turn {turn.place} cannot be continued: {error}") from None
        return cls(turn, state, resumed)

    def seed(self, trace: AnyTrace) -> None:
        """Let a new trace begin with what came before the turn."""
        self.leaf = seed(trace, self.state)
        if self.resumed:
            trace.id = self.turn.trace_id
        self.seeded = len(trace.nodes)
        turn, origin = self.turn, self.turn.origin
        if not self.resumed or origin is None or origin.resumed:  # else a branch goes on, which remains one
            origin = Origin(trace_id=turn.trace_id, turn=turn.turn, digest=turn.digest, resumed=self.resumed)
        trace.info[BRANCH] = origin.model_dump()

    def seed_sub(self, side: SubRollout) -> None:
        """Let the sub trace of a new rollout begin with the sub calls before the turn, which count as they did."""
        if (state := self.state.get(SUB)) is None:
            return
        seed(side.trace, state)
        if self.resumed:
            side.trace.id = state["id"]
        for call in side.trace.calls:
            side.session.tally.add(call, side.trace.nodes)
        self.seeded_sub = len(side.trace.nodes)

    def asked(self, digest: str) -> bool:
        """Take up the main conversation's first request; returns whether it waited when the rollout's process ended."""
        self.same_request = digest == self.turn.digest
        return self.resumed and self.same_request

    def known_answer(self) -> list[bytes] | None:
        """The stream that answered the call before the process ended, if one had come."""
        try:
            events = unpack((self.turn.place / ANSWER).read_bytes())
        except (OSError, ValueError):
            return None
        return [bytes(event) for event in events]

    def mask_own(self, trace: AnyTrace, sub: AnyTrace | None = None) -> None:
        """Mask what the rollout itself has sampled, where nothing of it is to train: at once, as an environment server
        sends a node only once."""
        if self.same_request and not self._had_forked(trace):
            return
        for one, seeded in ((trace, self.seeded), (sub, self.seeded_sub)):
            for node in [] if one is None else one.nodes[seeded:]:
                mask(node)

    def finish(self, trace: AnyTrace, sub: AnyTrace | None = None) -> None:
        """Mask what is not to train, when everything has run."""
        own = trace.nodes[self.seeded :]
        trace.info[BRANCH].update(same_request=bool(self.same_request), forked=self._had_forked(trace))
        trace.record_metric("own_turns", float(sum(node.sampled for node in own)))
        self.mask_own(trace, sub)
        for node in (*trace.nodes[: self.seeded], *(sub.nodes[: self.seeded_sub] if sub is not None else ())):
            mask(node)

    def _had_forked(self, trace: AnyTrace) -> bool:
        """Whether the turn's conversation had forked before its request, or forked with it."""
        if self.state.get("forks") is not None:
            return True
        first = next((node for node in trace.nodes[self.seeded :] if node.sampled), None)
        return first is not None and self.leaf is not None and self.leaf not in lineage(trace.nodes, first.parent)
