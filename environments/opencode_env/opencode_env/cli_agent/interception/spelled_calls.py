"""Calls whose marks a model spelled in ordinary tokens, which are read in two ways.

A mark such as `<tool_call>` is a token of its own. A model may also spell it in several: the text is the same. The tool
parser of a chat endpoint reads text, and finds a call there; a renderer, with which a trainer reads, finds text.
"""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from verifiers.v1.clients import ModelContext, TrainClientConfig
from verifiers.v1.clients.train import tool_to_wire
from verifiers.v1.graph import MessageNode
from verifiers.v1.types import AssistantMessage

from opencode_env.cli_agent.interception.answer_steps import LOGPROBS_RECORD
from opencode_env.cli_agent.interception.training_client import renderers_of
from opencode_env.cli_agent.traces import AnyTrace

_TAG = re.compile(r"<(?!/)[^<>\s]+>|\[TOOL_CALLS\]", re.IGNORECASE)
"""What may be a mark: read in time that grows with the text alone, since the text is the policy's."""


async def spelled_calls(ctx: ModelContext, trace: AnyTrace, first_node: int = 0) -> float | None:
    """Return how many calls of a trace were spelled, from a node on: text of it with a training client, calls of it
    with a chat endpoint.

    None where nothing tells: a chat endpoint says which tokens it has read in log-probabilities that lack none.
    """
    if not isinstance(ctx.client, TrainClientConfig):
        return _read_from_text(trace)
    answers = [node for node in trace.nodes[first_node:] if node.sampled and len(node.mask)]
    if not answers:
        return 0.0
    tools = [*{tool.name: tool_to_wire(tool) for node in trace.nodes for tool in node.tools}.values()]
    async with renderers_of(ctx.client, ctx).acquire() as slot:
        # The renderer is shared with other rollouts, so it is held for one answer at a time.
        counts = [await slot.run(partial(_read_from_tokens, slot.renderer, node, tools)) for node in answers]
        return float(sum(counts))


def _read_from_tokens(renderer: Any, node: MessageNode, tools: Sequence[Any]) -> int:
    ids, mask = [*map(int, node.token_ids)], [*map(bool, node.mask)]  # arrays, after verifiers 0.4.0
    if True not in mask:
        return 0
    begin = mask.index(True)
    spelled: int = renderer.spelled_calls(ids[:begin], ids[begin:], tools)
    return spelled


def _read_from_text(trace: AnyTrace) -> float | None:
    told = [entry for entry in trace.info.get(LOGPROBS_RECORD, ()) if _has_all_tokens(entry)]
    return float(sum(_spelled(trace, entry) for entry in told)) if told else None


def _has_all_tokens(entry: Mapping[str, Any]) -> bool:
    sampled = entry["completion_tokens"]
    return sampled is not None and len(entry["tokens"]) >= sampled


def _spelled(trace: AnyTrace, entry: Mapping[str, Any]) -> int:
    message, tokens = trace.nodes[entry["node"]].message, entry["tokens"]
    calls = len(message.tool_calls or ()) if isinstance(message, AssistantMessage) else 0
    if not calls or not (found := sum(map(_begins_call, _TAG.findall("".join(tokens))))):
        return 0
    whole = (token.strip() for token in tokens if "<" in token or "[" in token)
    marks = sum(_TAG.fullmatch(token) is not None and _begins_call(token) for token in whole)
    return max(0, min(found - marks, calls - marks))


def _begins_call(tag: str) -> bool:
    """Whether a call begins with it, in families of models that have a token for that."""
    tag = tag.lower()
    return tag in ("[tool_calls]", "<|python_tag|>") or ("end" not in tag and "call" in tag.partition("tool")[2])
