"""A rollout as OpenEnv's training trace, schema version 1: one turn for each answer that the model sampled.

Invariant: what `openenv.core.harness.training` of 0.10 checks holds here: strict types, unique ids, a mask over prompt
and completion whose prompt part is 0, and one finite logprob ≤ 0 for each completion token.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.traces import AnyTrace
from pydantic import BaseModel, Field
from verifiers.v1.trace import ModelCall

MAX_TOKENS = 4_000_000
"""Tokens of all turns, their prompts included: more would be an answer that OpenEnv's clients do not take (100 MB)."""
Role = Literal["main", "sub"]


class TrainingTurn(BaseModel, extra="forbid"):
    """One model call, token for token."""

    node_id: str
    prompt_token_ids: list[int]
    completion_token_ids: list[int]
    per_token_logps: list[float]
    loss_mask: list[int]
    """1 for each completion token that trains; over prompt and completion. Those of the role `sub` train where the
    server includes them (`--include-sub-llm-in-trajectory`)."""
    request: dict[str, Any] = Field(default_factory=dict)
    response: dict[str, Any] = Field(default_factory=dict)
    metadata: dict[str, Any] = Field(default_factory=dict)
    """`role` (main or sub), `parent` (the node before it whose tokens this prompt continues, or None), and `program`:
    whether a program that the agent started made the call, whose tokens then do not train."""


class TrainingTrace(BaseModel, extra="forbid"):
    """The calls of a rollout in the order of their answers, those of the role `sub` after the others."""

    schema_version: Literal[1] = 1
    turns: list[TrainingTurn]


class NoTrainingTraceError(ValueError):
    """Why a rollout has no training trace."""


def training_trace(traces: Mapping[Role, AnyTrace]) -> TrainingTrace:
    """The training trace of a rollout's traces.

    Raises:
        NoTrainingTraceError: the endpoint gave no token ids, tokens and logprobs do not fit, or it would be too large.
    """
    turns: list[TrainingTurn] = []
    tokens = 0
    for turn in (turn for role, trace in traces.items() for turn in _turns(role, trace)):
        tokens += len(turn.loss_mask)
        if tokens > MAX_TOKENS:
            raise NoTrainingTraceError(f"the turns hold more than {MAX_TOKENS:,} tokens with their prompts")
        turns.append(turn)
    if not turns:
        raise NoTrainingTraceError("the model gave no answer")
    return TrainingTrace(turns=turns)


def _turns(role: Role, trace: AnyTrace) -> Iterator[TrainingTurn]:
    calls = {call.node: call for call in trace.calls if call.node is not None}
    own = {call.node for call in own_calls(trace)}
    trains = own if role == "main" or (trace.agent is not None and trace.agent.trainable) else set()
    for number, node in enumerate(trace.nodes):
        if not node.sampled:
            continue
        if not len(node.token_ids):
            raise NoTrainingTraceError("the endpoint gave no token ids: ask with token_ids = true")
        sampled = sum(map(bool, node.mask))
        ids, logprobs = [int(token) for token in node.token_ids], [float(value) for value in node.logprobs]
        cut = len(ids) - sampled
        if not sampled or len(logprobs) != sampled or not all(node.mask[cut:]):
            raise NoTrainingTraceError(f"answer {number} has {len(logprobs)} logprobs for {sampled} sampled tokens")
        if any(not math.isfinite(value) or value > 0 for value in logprobs):
            raise NoTrainingTraceError(f"answer {number} has a logprob that is not a number")
        before, parent = _before(trace, node.parent)
        program = number not in own
        prompt = [*before, *ids[:cut]]
        request, response = _told(calls.get(number))
        yield TrainingTurn(
            node_id=f"{trace.id}:{number}",
            prompt_token_ids=prompt,
            completion_token_ids=ids[cut:],
            per_token_logps=logprobs,
            loss_mask=[0] * len(prompt) + [int(number in trains)] * sampled,
            request=request,
            response=response,
            metadata={"role": role, "parent": None if parent is None else f"{trace.id}:{parent}", "program": program},
        )


def _before(trace: AnyTrace, parent: int | None) -> tuple[list[int], int | None]:
    """The tokens from the root to a node, and the last sampled node among them."""
    path: list[int] = []
    while parent is not None:
        path.append(parent)
        parent = trace.nodes[parent].parent
    tokens = [int(token) for number in reversed(path) for token in trace.nodes[number].token_ids]
    return tokens, next((number for number in path if trace.nodes[number].sampled), None)


def _told(call: ModelCall | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """What a turn says of its request and of the response."""
    if call is None:
        return {}, {}
    sampling = call.sampling.model_dump(exclude_none=True) if call.sampling else {}
    usage = call.usage.model_dump(exclude_none=True) if call.usage else {}
    return {"model": call.model, "sampling": sampling}, {"finish_reason": call.finish_reason, "usage": usage}
