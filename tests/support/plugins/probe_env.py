"""`OpenCodeEnv` with two cleanup hooks that write to the journal."""

from typing import Any

import verifiers.v1 as vf
from opencode_env.agents.opencode.env import OpenCodeEnv
from opencode_rubrics import cleanup
from probe_journal import note  # type: ignore[import-not-found]  # beside this file on PYTHONPATH

__all__ = ["ProbeEnv"]


class ProbeEnv(OpenCodeEnv):
    """A subclass without a config of its own."""

    @cleanup(priority=-5)
    async def note_last(self, task: vf.TaskData, trace: Any, runtime: vf.Runtime) -> None:
        await note("env-last", task, trace, runtime)

    @cleanup(priority=30)
    async def note_first(self, task: vf.TaskData, trace: Any, runtime: vf.Runtime) -> None:
        await note("env-first", task, trace, runtime)
