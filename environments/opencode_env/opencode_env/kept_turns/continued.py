"""A rollout that continues a kept turn: what a trace holds in the middle of a rollout, how a new trace begins with it,
and what is said of it at the end.

A trace seeded so goes on as the one that it was taken from: the same nodes with the same tokens, calls that count
against the same limits, and conversations that fork where the other's would. Nothing that was sampled before the turn
trains again with what is sampled behind it. Nothing at all trains where the agent's first request is not the one that
the kept turn waited for, or where the conversation had forked by then: an agent that rewrites its own store does not
choose what it trains on.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opencode_runs.errors import BadInputError
from opencode_runs.traces.record import Origin
from opencode_runs.turns.kept import ANSWER_FILE, FILES, TRACE, KeptTurn, TurnRow, read_turn
from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer
from rollout_sandbox.toolbox.kept_files import require_whole
from verifiers.v1.errors import TaskError
from verifiers.v1.graph import MessageNode
from verifiers.v1.serve.delta import unpack
from verifiers.v1.trace import ModelCall
from verifiers.v1.types import Tool

from opencode_env.cli_agent.interception.callers import PROGRAM_CALLS, SubRollout
from opencode_env.cli_agent.interception.conversations import HISTORY_RECORD as FORKS
from opencode_env.cli_agent.interception.conversations import Forks
from opencode_env.cli_agent.interception.gateway import Gateway
from opencode_env.cli_agent.interception.history import CALL_FIELDS
from opencode_env.cli_agent.rollout import PlayedBefore
from opencode_env.cli_agent.traces import AGENT_RECORD, AnyTrace, agent_record, lineage, mask

SUB = "sub"
"""Key in the state of a kept turn with that of its sub trace."""
CONVERSATIONS = "conversations"
"""Key in the state of a trace with what is known of its conversations; turns of earlier versions lack it."""
FILLED = "filled"
"""Key in that state with the tokens that each conversation's newest call took of its window."""


class SeededNode(MessageNode):
    """A node from before a kept turn: wherever it is sent or written, it does not train. Its own mask stays until the
    rollout's end, as verifiers finds in it where the last answer begins, from which the next prompt's tokens go on
    (`PendingTurn.previous_renderer_token_ids`)."""

    @model_serializer(mode="wrap")
    def _masked(self, serialize: SerializerFunctionWrapHandler) -> dict[str, Any]:
        copied = self.model_copy()
        mask(copied)
        written: dict[str, Any] = serialize(copied)
        return written


def rollout_state(gateway: Gateway, session: str, info: Sequence[str] = ()) -> dict[str, Any]:
    """Return what stands on a rollout's traces, and is known beside them; `session` is its main conversation, `info`
    names further keys of `trace.info`."""
    main, side, forks = gateway.main.trace, gateway.side, {key: one.forks for key, one in gateway.histories.items()}
    leaf = forks[True].last(session) if forks else None
    state = {**_trace_state(main, forks.get(True), info), "leaf": leaf, FILLED: dict(gateway.summaries.used)}
    if side is not None:
        state[SUB] = {"id": side.trace.id, **_trace_state(side.trace, forks.get(False)), "leaf": None}
    return state


def _trace_state(trace: AnyTrace, forks: Forks | None, info: Sequence[str] = ()) -> dict[str, Any]:
    return {
        "nodes": [_whole(node) for node in trace.nodes],
        "calls": [call.model_dump(mode="python") for call in trace.calls],
        "tools": [tool.model_dump(mode="python") for tool in trace.tools],
        "media": {str(key): value for key, value in trace.mm_token_type_id_map.items()},
        "program_calls": list(trace.info.get(AGENT_RECORD, {}).get(PROGRAM_CALLS, ())),
        "info": {key: deepcopy(trace.info[key]) for key in (CALL_FIELDS, *info) if key in trace.info},
        "forks": deepcopy(trace.info.get(FORKS)),
        CONVERSATIONS: None if forks is None else forks.known(),
    }


def _whole(node: MessageNode) -> dict[str, Any]:
    """A node with its own mask, seeded or not."""
    ids = node.renderer_token_ids
    whole = MessageNode.__pydantic_serializer__.to_python(node, mode="python")
    return {**whole, "renderer_token_ids": None if ids is None else list(ids)}


def unpacked(data: bytes) -> dict[str, Any]:
    """A state from bytes, with its nodes, calls and tools read, and those of the sub trace in it; a `ValueError` where
    they are not a state."""
    state = unpack(data)
    kinds: dict[str, type[BaseModel]] = {"nodes": SeededNode, "calls": ModelCall, "tools": Tool}
    try:
        for one in [state] if state.get(SUB) is None else [state, state[SUB]]:
            for key, kind in kinds.items():
                one[key] = [kind.model_validate(each) for each in one[key]]
            parents = enumerate(node.parent for node in one["nodes"])
            if any(parent is not None and not 0 <= parent < number for number, parent in parents):
                raise ValueError("a node hangs on one that does not come before it")
            one["media"] = {int(key): value for key, value in one["media"].items()}
            one["program_calls"] = list(one["program_calls"])
            if not {"forks", "leaf"} <= one.keys():
                raise ValueError("something is missing")
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"no state of a trace: {error}") from None
    return dict(state)


def seed(trace: AnyTrace, state: dict[str, Any]) -> int | None:
    """Put a state that was read into a trace without nodes; returns the node of its main conversation's last answer."""
    trace.nodes.extend(state["nodes"])
    trace.calls.extend(state["calls"])
    trace.tools.extend(state["tools"])
    trace.mm_token_type_id_map = state["media"]
    if state["program_calls"]:
        agent_record(trace)[PROGRAM_CALLS] = list(state["program_calls"])
    trace.info.update(state.get("info", {}))
    if state["forks"] is not None:
        trace.info[FORKS] = state["forks"]
    leaf: int | None = state["leaf"]
    return leaf


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
    seeded_sub: int = 0
    leaf: int | None = None
    same_request: bool | None = field(default=None, init=False)
    """Whether the first request was the turn's; None before it came."""

    @classmethod
    def named(cls, row: TurnRow, versions: dict[str, str], runtime: str) -> "Continued":
        """The turn that a dataset's row names, to be continued by what has these versions in a sandbox of this type; a
        `TaskError` where it cannot be."""
        try:
            turn = read_turn(Path(row.kept_turn))
        except BadInputError as error:
            raise TaskError(f"the task names a kept turn that this process cannot read: {error}") from None
        if turn.digest != row.digest:
            raise TaskError(f"kept turn {row.kept_turn} is not the one that the task names: its request is another")
        return cls.of(turn, versions, runtime)

    @classmethod
    def of(cls, turn: KeptTurn, versions: dict[str, str], runtime: str, *, resumed: bool = False) -> "Continued":
        """A turn, if it can be continued; else a `TaskError`."""
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

    @property
    def before(self) -> PlayedBefore:
        """The part of the rollout that came before the turn."""
        turn, state = self.turn, self.state
        assert turn.session_id is not None
        nodes, calls = len(state["nodes"]), len(state["calls"])
        return PlayedBefore(turn.place, turn.session_id, turn.seconds, nodes, calls, self.resumed)

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

    def resume(self, forks: Forks, *, main: bool) -> None:
        """Let a trace that was seeded know its conversations; of a turn of an earlier version that holds none, the main
        one by its last answer."""
        state, session, leaf = (self.state if main else self.state.get(SUB)) or {}, self.turn.session_id, self.leaf
        known = state.get(CONVERSATIONS)
        if known is not None:
            forks.resume(known)
        elif main and session is not None and leaf is not None:
            usage = next((call.usage for call in state["calls"] if call.node == leaf), None)
            forks.resumed(leaf, session, 0 if usage is None else usage.total_tokens)

    def asked(self, digest: str) -> bool:
        """Take up the main conversation's first request; returns whether it waited when the rollout's process ended."""
        self.same_request = digest == self.turn.digest
        return self.resumed and self.same_request

    def known_answer(self) -> list[bytes] | None:
        """The stream that answered the call before the process ended, if one had come."""
        try:
            events = unpack((self.turn.place / ANSWER_FILE).read_bytes())
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
        if (self.state.get("forks") or {}).get("forks"):
            return True
        first = next((node for node in trace.nodes[self.seeded :] if node.sampled), None)
        return first is not None and self.leaf is not None and self.leaf not in lineage(trace.nodes, first.parent)
