"""What `vf-validate` asks of a task: the gold solution in a runtime that it brings, without an environment of ours.

Invariant: nothing of a row runs on this machine itself beyond what `vf-validate` has run there before it asks.
"""

from typing import Any

import verifiers.v1 as vf
from agent_sandbox.toolbox.processes import EndsAgentProcesses
from agent_sandbox.verifiers_040 import is_this_machine
from opencode_rubrics import workdir_of
from verifiers.v1.utils.decorators import invoke

from opencode_env.taskset.gold.solution import GoldError, apply_gold, gold_of, trace_for

_COMMAND = "opencode-check-tasks DATASET"
_SECONDS = 3600.0


async def gold_is_right(task: Any, runtime: vf.Runtime) -> bool | None:
    """Whether an `OpenCodeTask`'s gold solution scores 1 here; None where its row has none.

    Raises:
        TaskError: the runtime is this machine, or the column holds no solution.
    """
    if is_this_machine(runtime) and not isinstance(runtime, EndsAgentProcesses):
        raise vf.TaskError(
            "vf-validate's subprocess runtime is this machine, unconfined: a solution and its tests would run on its "
            f"files, and no reward there says what a sandbox gives. Use `{_COMMAND}` (the confined local sandbox), or "
            "--runtime.type docker, podman or prime"
        )
    rubric = task.rubric_config.resolved()
    path = getattr(rubric, "answer_path", None)
    config = getattr(runtime, "config", None)
    trace = trace_for(task, vf.AgentConfig() if config is None else vf.AgentConfig(runtime=config))
    try:
        gold = gold_of(task.data, rubric.type, path, None, None)
        if gold is None:
            return None
        await apply_gold(gold, runtime, trace, workdir_of(trace), path, task.data.timeout.agent or _SECONDS)
    except GoldError as error:
        raise vf.TaskError(f"{error}; `{_COMMAND}` says more") from error
    await invoke(task.finalize, {"trace": trace, "runtime": runtime, "deployment": None})
    await task.score(trace, runtime)
    return float(trace.reward) > 1 - 1e-6
