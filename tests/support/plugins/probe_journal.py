"""The journal of the probes: one JSON line per hook that ran, with what the hook saw."""

import json
import os
from typing import Any

import verifiers.v1 as vf


async def note(hook: str, task: vf.TaskData | None, trace: Any, runtime: vf.Runtime | None) -> None:
    """Append what a hook sees: the task, the verdict on the trace so far, and whether the sandbox still answers."""
    path = os.environ.get("PROBE_JOURNAL")
    if path is None:
        return
    seen = {
        "hook": hook,
        "task": None if task is None else task.id,
        "files": None if runtime is None else (await runtime.run(["sh", "-c", "ls /app"], {})).stdout.split(),
        "trace": None if trace is None else trace.id,
        "error": trace.last_error.type if trace is not None and trace.last_error else None,
        "rewards": None if trace is None else [reward.score for reward in trace.rewards.values() if reward is not None],
    }
    with open(path, "a") as journal:
        journal.write(json.dumps(seen) + "\n")
