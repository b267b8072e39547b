"""Rows of the probe taskset and of ordinary datasets, and scripts that find their row in the prompt."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opencode_env.scripted_model import Reply, Script


def write_rows(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSONL; returns the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def probe(name: str, **fields: Any) -> dict[str, Any]:
    """A row of the probe taskset (`plugins/probe_tasks.py`) whose prompt names it."""
    return {"id": name, "prompt": f"row {name}: do what the script says", **fields}


def probe_arguments(path: Path, *, env_id: str = "opencode-env") -> list[str]:
    """What `vf-eval` needs to play the probe rows in `path` under an environment."""
    return ["--env.taskset.id", "probe-tasks", "--env.taskset.rows", str(path), "--env.id", env_id]


def script(name: str, *steps: Reply) -> Script:
    """A script for the conversations of one row."""
    return Script(steps=steps, match=f"row {name}:")


def no_process(command: str) -> str:
    """A shell condition: no process that can be seen has this command line."""
    return f"! for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; echo; done 2>/dev/null | grep -q '^{command}'"
