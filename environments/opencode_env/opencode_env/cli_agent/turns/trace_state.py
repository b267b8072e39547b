"""What a trace holds in the middle of a rollout, as bytes at full precision, and put into a new trace.

Invariant: a trace seeded so goes on as the one that it was taken from: the same nodes with the same tokens, calls that
count against the same limits, and conversations that fork where the other's would.
"""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from pydantic import BaseModel, SerializerFunctionWrapHandler, model_serializer
from verifiers.v1.graph import MessageNode
from verifiers.v1.serve.delta import unpack
from verifiers.v1.trace import ModelCall
from verifiers.v1.types import Tool

from opencode_env.cli_agent.interception.conversations import HISTORY_RECORD as FORKS
from opencode_env.cli_agent.interception.history import CALL_FIELDS
from opencode_env.cli_agent.interception.own_calls import PROGRAM_CALLS
from opencode_env.cli_agent.traces import AGENT_RECORD, AnyTrace, agent_record

SUB = "sub"
"""Key in the state of a kept turn with that of its sub trace."""


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


def mask(node: MessageNode) -> None:
    """Let nothing of a node train. Which experts its tokens were routed to stays, as for those of any prompt."""
    node.mask = [False] * len(node.mask)
    node.logprobs = []
    node.advantages = node.reference_logprobs = node.trainer_logprobs = node.entropies = None
    node.sampling_mask = node.loss_weights = None


def trace_state(trace: AnyTrace, leaf: int | None = None, info: Sequence[str] = ()) -> dict[str, Any]:
    """A trace of a rollout's main calls, or of its sub calls, as it is now; `leaf` is the node of the last answer of
    its main conversation, `info` names further keys of `trace.info`."""
    return {
        "nodes": [_whole(node) for node in trace.nodes],
        "calls": [call.model_dump(mode="python") for call in trace.calls],
        "tools": [tool.model_dump(mode="python") for tool in trace.tools],
        "media": {str(key): value for key, value in trace.mm_token_type_id_map.items()},
        "program_calls": list(trace.info.get(AGENT_RECORD, {}).get(PROGRAM_CALLS, ())),
        "info": {key: deepcopy(trace.info[key]) for key in (CALL_FIELDS, *info) if key in trace.info},
        "forks": deepcopy(trace.info.get(FORKS)),
        "leaf": leaf,
    }


def _whole(node: MessageNode) -> dict[str, Any]:
    """A node with its own mask, seeded or not."""
    ids = node.renderer_token_ids
    whole = MessageNode.__pydantic_serializer__.to_python(node, mode="python")
    return {**whole, "renderer_token_ids": None if ids is None else list(ids)}


def unpacked(data: bytes) -> dict[str, Any]:
    """A state from bytes, with its nodes, calls and tools read, and those of the sub trace in it.

    Raises:
        ValueError: they are not a state.
    """
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
