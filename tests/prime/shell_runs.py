"""Runs of `vf-eval` with a shell script as the agent, in sandboxes of the server, which reach it at an own URL."""

from collections.abc import Mapping, Sequence
from typing import Any

from tests.support.places import options_of, own_url
from tests.support.rows import write_rows
from tests.support.user_home import UserHome

LABEL = "run-of-the-shell-agent"


def shell_run(home: UserHome, rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """What `vf-eval` needs to play rows of an ordinary dataset; the sandboxes carry `LABEL`."""
    dataset = str(write_rows(home.root / "rows.jsonl", rows))
    taskset = ["opencode-env", "--env.taskset.dataset", dataset, "--env.agent.harness.id", "shell-agent"]
    runtime = ["--env.agent.runtime.type", "prime", "--env.agent.runtime.labels", f'["{LABEL}"]']
    return [*taskset, *runtime, *options_of(own_url())]
