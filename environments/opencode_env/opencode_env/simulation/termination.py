"""Why an episode ended, in the words that trainers of its family expect."""

from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.simulation.ledger import LedgerSummary, TerminationReason

TERMINATION_KEY = "termination_reason"
"""Where `trace.info` has it."""

USER_STOP = "user_stop"
"""The stop condition by which a simulated user says that the conversation is over."""

_STEP_LIMITS = ("max_turns", "max_user_turns")


def termination_reason(
    trace: AnyTrace, summary: LedgerSummary, last_info: dict[str, object]
) -> TerminationReason | None:
    """The reason, or None where the agent just stopped, ran out of time or failed.

    Args:
        trace: the rollout's.
        summary: of its episode.
        last_info: what the last step said.
    """
    if summary.terminated or (summary.truncated and last_info.get("truncated_by") != "max_steps"):
        return "control_plane_signal"
    if summary.truncated or trace.stop_condition in _STEP_LIMITS:
        return "max_steps"
    return "user_stop" if trace.stop_condition == USER_STOP else None
