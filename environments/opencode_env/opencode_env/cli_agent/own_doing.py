"""A run that broke when its agent's programs could have broken it: who did, by `outcome_rule` and what is asked now."""

from opencode_rubrics import require_alive
from verifiers.v1.errors import HarnessError, RolloutError, TaskError
from verifiers.v1.runtimes import Runtime

from opencode_env.cli_agent.agent_error import killed_for_memory
from opencode_env.cli_agent.outcome_rule import Evidence, endpoint_failure
from opencode_env.cli_agent.rollout import rollout_of
from opencode_env.cli_agent.traces import AnyTrace, agent_record

OWN_ERROR = "own_error"
"""Key of the agent's record: what the agent broke its own run with."""

_REASON_CHARACTERS = 4000


async def require_own_doing(problem: RolloutError, evidence: Evidence, trace: AnyTrace, runtime: Runtime) -> None:
    """Return if it was the agent's own doing.

    Args:
        problem: how the run broke.
        evidence: what our server saw of it.
        trace: the rollout's.
        runtime: where the agent ran.

    Raises:
        ProviderError: the endpoint failed the agent's own calls for good.
        InterceptionError: the same, while they failed on the way to the endpoint.
        TaskError: a hook of the task raised at the last call.
        HarnessError: the kernel ended the agent's program for want of memory.
        SandboxError: the sandbox is gone.
    """
    left = rollout_of(trace).take_failure()
    if isinstance(left, TaskError):
        raise left from problem
    if (failure := endpoint_failure(evidence)) is not None:
        raise failure from problem
    if await killed_for_memory(trace, runtime):
        raise HarnessError(f"{problem}\nprocesses were killed for want of memory meanwhile") from problem
    await require_alive(runtime, "the agent ran")


def note_own_doing(problem: RolloutError, trace: AnyTrace) -> None:
    """Say on the trace that the agent broke its own run, and how; it is scored on the files as they are."""
    agent_record(trace)[OWN_ERROR] = f"{type(problem).__name__}: {problem}"[:_REASON_CHARACTERS]
    trace.stop("agent_error")
