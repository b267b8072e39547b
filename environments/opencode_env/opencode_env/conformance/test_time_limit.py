"""The agent's time limit ends it, and what it did until then is scored."""

import pytest

from opencode_env.cli_agent.outcomes import Outcome
from opencode_env.conformance.rollout import Rollout, Row
from opencode_env.conformance.rows import LIMIT_SECONDS, SILENT_SECONDS


def assert_timed_out(rollout: Rollout) -> None:
    """It was ended by the agent's time limit, and scored."""
    promise = "The agent's own time limit is the policy's doing: it ends the agent, and the rollout is scored."
    assert rollout.ok, rollout.broken(promise)
    row = Outcome.AGENT_TIMEOUT.row
    assert rollout.stop == row.stop, rollout.broken(promise)
    assert rollout.metrics[row.metric] == 1.0, rollout.broken(f"The metric {row.metric} must say so.")
    assert rollout.metrics["agent_error"] == 0.0, rollout.broken("A time limit is not an error of the agent.")


@pytest.mark.rows("silent")
def test_an_agent_that_waits_for_its_model_is_ended_and_scored(row: Row) -> None:
    silent = row("silent")
    if silent.error.startswith("HarnessError: the agent's time was over before its first model call"):
        pytest.skip(f"this machine is too busy: the agent did not start within {SILENT_SECONDS:g} s")
    own_end = f"An agent waits for its model for longer than {SILENT_SECONDS:g} s, and does not give up before."
    assert not silent.error.startswith("HarnessError: "), silent.broken(own_end)
    assert_timed_out(silent)


@pytest.mark.rows("late")
@pytest.mark.usefixtures("commands")
def test_an_agent_that_waits_for_its_command_is_ended_with_it_and_scored(row: Row) -> None:
    late = row("late")
    assert_timed_out(late)
    if late.metrics["num_turns"] == 0:
        pytest.skip(f"this machine is too busy: the agent did not come to its command within {LIMIT_SECONDS:g} s")
    assert late.reward == 1.0, late.broken("What the agent ran must be gone, and what it wrote must be there.")
