"""Calls whose marks a model spelled in ordinary tokens, which are read in two ways.

A mark such as `<tool_call>` is a token of its own. A model may also spell it in several: the text is the same. The tool
parser of a chat endpoint reads text, and finds a call there; a renderer, with which a trainer reads, finds text.
"""

import re
from collections.abc import Mapping
from typing import Any

from verifiers.v1.clients import ModelContext, TrainClientConfig
from verifiers.v1.clients.train import tool_to_wire
from verifiers.v1.types import AssistantMessage

from opencode_env.cli_agent.interception.answer_steps import LOGPROBS_RECORD
from opencode_env.cli_agent.interception.training_client import renderers_of
from opencode_env.cli_agent.traces import AnyTrace

_MARK = re.compile(
    r"<(?!/)(?![^<>\s]*end)[^<>\s]*tool[^<>\s]*call[^<>\s]*>|\[TOOL_CALLS\]|<\|python_tag\|>", re.IGNORECASE
)
"""With what a call begins, in families of models that have a token for it."""


async def spelled_calls(ctx: ModelContext, trace: AnyTrace) -> float | None:
    """Return how many calls of a trace were spelled: text of it with a training client, calls of it with a chat
    endpoint.

    None where nothing tells: a chat endpoint says which tokens it has read in log-probabilities that lack none.
    """
    if not isinstance(ctx.client, TrainClientConfig):
        return _read_from_text(trace)
    answers = [
        (node.token_ids[: node.mask.index(True)], node.token_ids[node.mask.index(True) :])
        for node in trace.nodes
        if node.sampled and True in node.mask
    ]
    if not answers:
        return 0.0
    tools = [*{tool.name: tool_to_wire(tool) for node in trace.nodes for tool in node.tools}.values()]
    async with renderers_of(ctx.client, ctx).acquire() as slot:
        renderer: Any = slot.renderer
        return await slot.run(lambda: float(sum(renderer.spelled_calls(*answer, tools) for answer in answers)))


def _read_from_text(trace: AnyTrace) -> float | None:
    told = [entry for entry in trace.info.get(LOGPROBS_RECORD, ()) if _has_all_tokens(entry)]
    return float(sum(_spelled(trace, entry) for entry in told)) if told else None


def _has_all_tokens(entry: Mapping[str, Any]) -> bool:
    sampled = entry["completion_tokens"]
    return sampled is not None and len(entry["tokens"]) >= sampled


def _spelled(trace: AnyTrace, entry: Mapping[str, Any]) -> int:
    message, tokens = trace.nodes[entry["node"]].message, entry["tokens"]
    calls = len(message.tool_calls or ()) if isinstance(message, AssistantMessage) else 0
    marks = sum(_MARK.fullmatch(token.strip()) is not None for token in tokens)
    spelled = len(_MARK.findall("".join(tokens))) - marks
    return max(0, min(spelled, calls - marks))
