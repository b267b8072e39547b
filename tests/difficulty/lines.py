"""Lines of `traces.jsonl` made by hand, for the cases that a real run produces rarely or never."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def trace(reward: float | None = 1.0, **changes: Any) -> Line:
    """A sound trace of the agent's seat; a reward of None is a reward that was not computed."""
    return {
        "version": 1,
        "id": "t",
        "verifiers": {"version": "0.4.0"},
        "agent": {"name": "agent", "trainable": True, "config": {"model": "small", "sampling": {"temperature": 0.7}}},
        "nodes": [{"sampled": False}, {"sampled": True}],
        "rewards": {"correct": None if reward is None else {"score": reward, "weight": 1.0}},
        "ok": True,
        "stop_condition": "agent_completed",
        "errors": [],
        "num_total_tokens": 110,
    } | changes


def seat(name: str, model: str = "small", *, trainable: bool = True) -> Line:
    """The `agent` of a trace."""
    return {"name": name, "trainable": trainable, "config": {"model": model}}


_COUNT = iter(range(10**9))


def episode(key: str, *traces: Line, task_id: str | None = None, **changes: Any) -> Line:
    """An episode of task `key`; it is ok if all its traces are."""
    return {
        "id": f"{next(_COUNT):032x}",
        "env": {"id": "probe"},
        "task": {"type": "Task", "key": key, "hash": key, "data": {"id": task_id, "prompt": f"the prompt of {key}"}},
        "ok": all(found["ok"] for found in traces),
        "errors": [],
        "traces": list(traces),
    } | changes


def attempts(key: str, *rewards: float, model: str = "small", task_id: str | None = None) -> list[Line]:
    """One episode for each reward."""
    return [episode(key, trace(reward, agent=seat("agent", model)), task_id=task_id) for reward in rewards]


def write_run(folder: Path, lines: Iterable[Line], tail: bytes = b"", config: Line | None = None) -> Path:
    """A run directory with these lines, `tail` after them, and the configuration of its evaluation; the directory."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "traces.jsonl").write_bytes(b"".join(json.dumps(line).encode() + b"\n" for line in lines) + tail)
    if config is not None:
        (folder / "configs" / "resolved").mkdir(parents=True)
        (folder / "configs" / "resolved" / "eval.json").write_text(json.dumps(config))
    return folder
