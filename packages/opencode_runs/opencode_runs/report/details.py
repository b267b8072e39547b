"""A rollout as the page opens it: conversation, calls, times, rewards, errors, and what trains."""

import itertools
from dataclasses import fields
from typing import Any

import numpy as np

from opencode_runs.report.record import ShownCall, ShownEpisode, ShownTrace
from opencode_runs.trainable.figures import TraceFigures
from opencode_runs.trainable.record import TokenNode
from opencode_runs.trainable.samples import BrokenGraphError, branch_paths, trained_branches

MAX_TOKENS = 20_000
"""Of a trace whose tokens are shown one by one."""
_ELSEWHERE = {"run", "episode", "trace", "task", "group", "advantage", "errors"}
_TRAINER = [field.name for field in fields(TraceFigures) if field.name not in _ELSEWHERE]


def details(episode: ShownEpisode, figures: list[TraceFigures]) -> dict[str, Any]:
    """All of an episode that is shown, as JSON values that are not cleaned yet."""
    data = episode.task_data if isinstance(episode.task_data, dict) else {}
    return {
        "id": episode.id, "env": episode.env, "run": episode.run, "group": episode.group_id,
        "task": {"key": episode.task_key, "hash": episode.task_hash, "data": data},
        "ok": episode.ok, "errors": [error.model_dump() for error in episode.errors],
        "traces": [_trace(trace, found) for trace, found in zip(episode.traces, figures, strict=True)],
    }  # fmt: skip


def _trace(trace: ShownTrace, figures: TraceFigures) -> dict[str, Any]:
    paths: list[tuple[int, ...]] = []
    samples: list[dict[str, Any]] = []
    try:
        paths = branch_paths(trace)
        for found in trained_branches(trace, paths):
            tokens, trained = trace.tokens_of(found)
            samples.append({"branch": found.branch, "trains": found.trains, "trained": trained, "tokens": tokens})
    except BrokenGraphError:
        pass  # The findings say so; the messages are shown in their order.
    room = MAX_TOKENS
    nodes = []
    for node in trace.nodes:
        nodes.append(_node(node, shown=room > 0))
        room -= len(node.token_ids)
    info = trace.info
    if isinstance(info, dict):
        info = {name: value for name, value in info.items() if name != "logprobs"}  # which stand in `kept`
    return {
        "id": trace.id, "seat": trace.seat, "model": trace.model, "ok": trace.ok, "verifiers": trace.verifiers,
        "harness": trace.harness, "runtime": trace.runtime, "sampling": trace.sampling_text,
        "stop": trace.stop_condition, "dropped": trace.dropped, "reward": trace.reward,
        "rewards": {name: reward.model_dump() if reward else None for name, reward in trace.rewards.items()},
        "metrics": trace.metrics, "info": info, "timing": trace.timing,
        "errors": [error.model_dump() for error in trace.errors],
        "tools": _tools(trace), "calls": [_call(call) for call in trace.calls], "nodes": nodes,
        "paths": paths, "samples": samples,
        "kept": [kept.model_dump() for kept in trace.kept or ()],
        "wrong_types": trace.wrong_types or None,
        "trainer": {name: getattr(figures, name) for name in _TRAINER},
    }  # fmt: skip


def _tools(trace: ShownTrace) -> list[Any]:
    """Name and description of each tool that was offered."""
    found: Any = trace.tools or next((node.tools for node in trace.nodes if node.tools), [])
    tools = [tool for tool in found if isinstance(tool, dict)] if isinstance(found, list) else []
    return [{"name": tool.get("name"), "description": tool.get("description")} for tool in tools]


def _call(call: ShownCall) -> dict[str, Any]:
    usage = call.usage
    return {
        "node": call.node, "model": call.model, "start": call.start, "end": call.end, "finish": call.finish_reason,
        "in": usage.input_tokens if usage else None, "cached": usage.cached_input_tokens if usage else None,
        "out": usage.completion_tokens if usage else None, "error": call.error, "endpoint": call.endpoint,
        "sampling": call.sampling,
    }  # fmt: skip


def _node(node: TokenNode, *, shown: bool) -> dict[str, Any]:
    found: dict[str, Any] = {"parent": node.parent, "sampled": node.sampled, "message": node.message}
    found["at"] = node.timestamp
    if node.token_ids:
        found["count"], found["trained"] = len(node.token_ids), node.trained
        if shown:
            found["tokens"] = node.token_ids
            found["mask"] = _lengths(node.mask)
            found["logprobs"] = np.round(np.array(node.logprobs, dtype=float), 3).tolist()
            for name in ("advantages", "entropies", "reference_logprobs", "trainer_logprobs"):
                if (values := getattr(node, name)) is not None:
                    found[name] = values
    return found


def _lengths(mask: list[bool]) -> list[int]:
    """How many tokens in a row do not train, then do, and so on in turn."""
    found = [len(list(same)) for _, same in itertools.groupby(mask)]
    return [0, *found] if mask and mask[0] else found
