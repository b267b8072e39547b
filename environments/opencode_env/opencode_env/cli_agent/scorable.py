"""Which rollouts get a score: those whose agent has ended, and that the machinery has not failed."""

from agent_sandbox.prime.errors import SandboxEndedError
from verifiers.v1.errors import HarnessError, SandboxError, TaskError

from opencode_env.cli_agent.agent_error import has_hands
from opencode_env.cli_agent.interception.own_calls import own_calls
from opencode_env.cli_agent.model_failure import require_model_calls
from opencode_env.cli_agent.outcome_rule import Evidence, endpoint_failure
from opencode_env.cli_agent.startup import NOT_STARTED
from opencode_env.cli_agent.traces import AnyTrace, agent_record

_STAGES = ("setup", "finalize", "scoring")


def require_scorable(trace: AnyTrace) -> None:
    """Refuse a score that the agent could still be changing, or whose agent ran out of time for want of a model.

    Raises:
        SandboxError: processes of the agent are left in the sandbox; a `SandboxEndedError` where its own programs can
            have kept them from being ended, which is not tried again.
        HarnessError: the time was over before the agent's first model call.
        ProviderError: the time was over while the endpoint failed the agent's calls.
        InterceptionError: the same, while they failed on the way to the endpoint.
    """
    record = agent_record(trace)
    if survivors := record.get("survivors"):
        kind = SandboxEndedError if record.get("survivors_own") else SandboxError
        raise kind(f"not scored, the agent's processes could not be ended: {survivors}")
    if trace.stop_condition == "agent_timeout" and record.get(NOT_STARTED) and not has_hands(trace):
        raise HarnessError("the agent's time was over before its first model call (--env.agent.timeout.rollout)")
    if trace.stop_condition != "agent_timeout" or not (calls := own_calls(trace)):
        return
    if not has_hands(trace):
        require_model_calls(calls, "when its time was over")
        return
    harness = trace.agent.config.harness if trace.agent is not None else None
    failure = endpoint_failure(Evidence.of(trace, 0, harness, time_over=trace.timing.agent.end))
    if failure is not None:
        raise failure


def fail_stage_timeout(trace: AnyTrace) -> None:
    """Turn an expired setup, finalize or scoring deadline, which verifiers records as a clean stop, into an error.

    Only the agent's own time limit is the policy's doing.
    """
    stage = (trace.stop_condition or "").removesuffix("_timeout")
    if not trace.ok or stage not in _STAGES or not trace.is_timeout:
        return
    error = TaskError(f"{stage} did not finish within its deadline (--env.agent.timeout.{stage}); nothing was scored")
    trace.record_error(error)


def unscore_failed(trace: AnyTrace) -> None:
    """Take the rewards off a trace that holds an error, those too that were given before it happened."""
    if not trace.ok:
        trace.rewards = dict.fromkeys(trace.rewards)
