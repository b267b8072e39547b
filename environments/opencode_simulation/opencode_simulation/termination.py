"""Why an episode ended, in the words that trainers of its family expect."""

from opencode_env.cli_agent.traces import AnyTrace
from opencode_env.user_simulation.sides import MAX_USER_TURNS, USER_STOP

from opencode_simulation.ledger import LedgerSummary, TerminationReason

TERMINATION_KEY = "termination_reason"
"""Where `trace.info` has it."""
_TURN_LIMITS = ("max_turns", MAX_USER_TURNS)
_LEDGER_LIMITS = ("max_steps", "ledger_bytes")
"""By what an `Episode` truncates: `truncated_by` in the last step's info."""


def termination_reason(
    trace: AnyTrace, summary: LedgerSummary, last_info: dict[str, object]
) -> TerminationReason | None:
    """The reason, or None where the agent just stopped, ran out of time or failed.

    Args:
        summary: of its episode.
        last_info: what the last step said.
    """
    if summary.terminated or (summary.truncated and last_info.get("truncated_by") not in _LEDGER_LIMITS):
        return "control_plane_signal"
    if summary.truncated or trace.stop_condition in _TURN_LIMITS:
        return "max_steps"
    return "user_stop" if trace.stop_condition == USER_STOP else None
