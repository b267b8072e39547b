"""A trace as trajectories in ATIF, the form that Harbor reads: one for each branch, as a trajectory is a line.

https://harborframework.com/docs/trajectory-format
"""

import json
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from opencode_runs.report.record import ShownCall, ShownEpisode, ShownTrace
from opencode_runs.trainable.samples import BrokenGraphError, branch_paths

VERSION = "ATIF-v1.8"
SOURCES = {"system": "system", "user": "user", "assistant": "agent", "developer": "system"}
Step = dict[str, Any]


def trajectories(episode: ShownEpisode, trace: ShownTrace) -> Iterator[dict[str, Any]]:
    """The trajectories of a trace, one for each branch; none for a trace without messages or with a broken graph.

    What an earlier branch holds already is marked as copied context in a later one, so that nothing trains twice.
    """
    try:
        paths = branch_paths(trace)
    except BrokenGraphError:
        return
    told: set[int] = set()
    for branch, path in enumerate(paths):
        steps = _steps(trace, path, frozenset(told))
        told.update(path)
        usages = [call.usage for call in trace.calls if call.node in path and call.usage is not None]
        yield _without_none(
            {
                "schema_version": VERSION,
                "session_id": episode.id,
                "trajectory_id": f"{trace.id or episode.id}.{branch}",
                "agent": _agent(trace),
                "steps": [{"step_id": number, **step} for number, step in enumerate(steps, start=1)],
                "final_metrics": {
                    "total_prompt_tokens": sum(usage.input_tokens for usage in usages),
                    "total_completion_tokens": sum(usage.completion_tokens for usage in usages),
                    "total_cached_tokens": sum(usage.cached_input_tokens or 0 for usage in usages),
                    "total_steps": len(steps),
                },
                "extra": {
                    "env": episode.env,
                    "task": episode.task_id or episode.task_name or episode.task,
                    "seat": trace.seat,
                    "reward": trace.reward,
                    "rewards": {name: reward and reward.model_dump() for name, reward in trace.rewards.items()},
                    "stop_condition": trace.stop_condition,
                    "errors": [error.type for error in trace.errors],
                    "branch": branch,
                    "branches": len(paths),
                },
            }
        )


def _agent(trace: ShownTrace) -> dict[str, Any]:
    info = trace.info.get("agent") if isinstance(trace.info, dict) else None
    version = info.get("version") if isinstance(info, dict) else None
    offered = trace.tools if isinstance(trace.tools, list) else []
    tools = [tool for tool in offered if isinstance(tool, dict)]
    return {
        "name": str(trace.harness or trace.seat),
        "version": str(version or "unknown"),
        "model_name": trace.model,
        "tool_definitions": [_definition(tool) for tool in tools] or None,
    }


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    function = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return tool if "function" in tool else {"type": "function", "function": function}


def _steps(trace: ShownTrace, path: tuple[int, ...], told: frozenset[int]) -> list[Step]:
    steps: list[Step] = []
    calls = {call.node: call for call in trace.calls if call.node is not None}
    context: list[int] = []
    for number in path:
        node = trace.nodes[number]
        message = node.message if isinstance(node.message, dict) else {"role": "user", "content": node.message}
        if message.get("role") == "tool" and steps:
            _observe(steps[-1], message)
        else:
            step = _step(message, node.timestamp, copied=number in told)
            if step["source"] == "agent":
                sampled = [token for token, own in zip(node.token_ids, node.mask, strict=False) if own]
                head = len(node.token_ids) - len(sampled)
                metrics = _metrics(calls.get(number), context + node.token_ids[:head], sampled, node.logprobs)
                step |= _said(message, number) | {"metrics": metrics, "llm_call_count": int(node.sampled)}
                if not node.sampled:
                    step |= {"metrics": None, "reasoning_content": None}
            steps.append(step)
        context += node.token_ids
    return steps


def _step(message: dict[str, Any], at: float | None, *, copied: bool) -> Step:
    return {
        "timestamp": datetime.fromtimestamp(at, UTC).isoformat() if at and 0 < at < 1e11 else None,
        "source": SOURCES.get(str(message.get("role")), "user"),
        "message": plain_text(message.get("content")),
        "is_copied_context": True if copied else None,
    }


def _said(message: dict[str, Any], number: int) -> Step:
    """What only an agent's step has."""
    reasoning = message.get("reasoning_content")
    calls = [call for call in message.get("tool_calls") or () if isinstance(call, dict)]
    return {
        "reasoning_content": reasoning if isinstance(reasoning, str) else None,
        "tool_calls": [
            {
                "tool_call_id": str(call.get("id") or f"call-{number}-{place}"),
                "function_name": str(call.get("name")),
                **_arguments(call.get("arguments")),
            }
            for place, call in enumerate(calls)
        ]
        or None,
    }


def _arguments(given: Any) -> dict[str, Any]:
    """Arguments are an object; what the model wrote instead stands beside them."""
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = None
    return {"arguments": value} if isinstance(value, dict) else {"arguments": {}, "extra": {"raw_arguments": given}}


def _observe(step: Step, message: dict[str, Any]) -> None:
    """Take a tool's result into the step that asked for it."""
    asked = {call["tool_call_id"] for call in step.get("tool_calls") or ()}
    call = message.get("tool_call_id")
    result = {"source_call_id": call if call in asked else None, "content": plain_text(message.get("content"))}
    step.setdefault("observation", {"results": []})["results"].append(result)


def _metrics(call: ShownCall | None, context: list[int], sampled: list[int], logprobs: list[float]) -> Any:
    usage = call.usage if call is not None else None
    found: dict[str, Any] = {}
    if usage is not None:
        found = {
            "prompt_tokens": usage.input_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_input_tokens,
        }
    if sampled:
        found |= {"prompt_token_ids": context, "completion_token_ids": sampled}
        if len(logprobs) == len(sampled) and all(map(math.isfinite, logprobs)):
            found["logprobs"] = logprobs
    return found or None


def plain_text(content: Any) -> str:
    """A message's text; of parts that are not text, their kind."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return "" if content is None else json.dumps(content, ensure_ascii=False)
    parts = [part if isinstance(part, dict) else {"text": str(part)} for part in content]
    return "\n".join(str(part["text"]) if "text" in part else f"[{part.get('type', 'part')}]" for part in parts)


def _without_none(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_none(one) for name, one in value.items() if one is not None}
    return [_without_none(one) for one in value] if isinstance(value, list) else value
