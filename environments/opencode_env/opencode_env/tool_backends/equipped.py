"""A task with the tool backends of its rollout.

Invariant: a rollout whose backend failed has an error, however its agent went on; nothing of it is scored.
"""

from collections.abc import Callable
from typing import Any

from verifiers.v1.runtimes import Runtime
from verifiers.v1.task import Task
from verifiers.v1.trace import Trace
from verifiers.v1.utils.decorators import invoke

from opencode_env.cli_agent.changed_task import with_methods
from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.tool_backends.rollout_tools import RolloutTools

BACKENDS_RECORD = "tool_backends"
"""Key in `trace.info` under which the calls of each backend are counted."""


def equipped_task(task: Task[Any, Any, Any], tools: RolloutTools) -> Task[Any, Any, Any]:
    """The same task, which starts the backends in its setup, offers their tools and stops when one fails."""

    async def setup(trace: AnyTrace, runtime: Runtime) -> None:
        trace.info[BACKENDS_RECORD] = tools.record
        await tools.start()
        await invoke(task.setup, {"trace": trace, "runtime": runtime})

    def toolsets(config: Any) -> list[Any]:
        return [*task.toolsets(config), *tools.toolsets]

    # verifiers knows a stop by this very annotation.
    async def tool_backend_failed(trace: Trace) -> bool:  # type: ignore[type-arg]
        return tools.failure is not None

    def hooks(attr: str) -> list[Callable[..., Any]]:
        return [*([tool_backend_failed] if attr == "stop" else []), *task.hooks(attr)]

    # By name: the deployment came with verifiers 0.4.1 (dev18), and tasks written before do not take it.
    async def finalize(trace: AnyTrace, runtime: Runtime, deployment: Any = None) -> None:
        if tools.failure is not None:
            raise tools.failure
        await invoke(task.finalize, {"trace": trace, "runtime": runtime, "deployment": deployment})
        if tools.failure is not None:
            raise tools.failure

    return with_methods(task, setup=setup, toolsets=toolsets, hooks=hooks, finalize=finalize)
