"""What the infrastructure did to a rollout is an error of the boundary that broke, and never a reward."""

import pytest

from opencode_env.cli_agent.outcomes import endpoint_errors
from opencode_env.conformance.evidence import LIMIT_SECONDS, Evaluations, RecordedEvaluation
from opencode_env.conformance.plugin import PlayedRow, Rows

MODEL_ERRORS = tuple(f"{name}: " for name in endpoint_errors())


def assert_unscored(rollout: PlayedRow, errors: tuple[str, ...], fault: str) -> None:
    """The rollout is the error of its boundary and has no reward."""
    promise = f"{fault}: the infrastructure's doing must be an error, never a reward."
    assert not rollout.ok, rollout.broken(promise)
    assert rollout.reward is None, rollout.broken(promise)
    assert rollout.error.startswith(errors), rollout.broken(f"{fault}: the error must be one of {', '.join(errors)}")


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        pytest.param(name, fault, marks=pytest.mark.rows(name))
        for name, fault in (
            ("always-500", "The endpoint answers 500 for ever"),
            ("refused", "The endpoint answers 401"),
            ("always-cut", "The endpoint closes every connection in mid-reply"),
        )
    ],
)
def test_an_endpoint_that_fails_for_good_is_a_typed_error_and_never_a_reward(row: Rows, name: str, fault: str) -> None:
    assert_unscored(row(name), MODEL_ERRORS, fault)


@pytest.mark.rows("short-500")
def test_a_time_limit_hides_no_failing_endpoint(row: Rows, main: RecordedEvaluation) -> None:
    short = row("short-500")
    if short.ok and len(main.asked("short-500")) < 2:
        pytest.skip(f"this machine is too busy: the agent read no answer within {LIMIT_SECONDS:g} s")
    assert_unscored(short, MODEL_ERRORS, "The agent's time is over while the endpoint answers 500")


def test_an_endpoint_that_cannot_be_reached_is_a_typed_error_and_never_a_reward(dead: RecordedEvaluation) -> None:
    assert_unscored(PlayedRow(dead, "dead"), MODEL_ERRORS, "Nothing listens at the endpoint")


@pytest.mark.rows("no-finish")
def test_a_stream_without_a_finish_reason_is_a_typed_error_and_never_a_reward(
    row: Rows, main: RecordedEvaluation
) -> None:
    if not main.policy.streamed.get("no-finish"):
        pytest.skip("the agent does not ask for streams")
    assert_unscored(row("no-finish"), MODEL_ERRORS, "The endpoint's streams name no finish reason")


@pytest.mark.rows("recovers")
def test_a_fault_that_passes_is_a_sound_rollout_where_the_agent_tries_again(
    row: Rows, main: RecordedEvaluation
) -> None:
    recovers = row("recovers")
    sent = len(main.asked("recovers"))
    if recovers.error.startswith(MODEL_ERRORS) and recovers.reward is None and sent <= 2:
        pytest.skip("the agent does not try a failed call again; its rollout is an error, as it must be")
    promise = "A failed call that the agent tried again with success is not an error."
    assert recovers.ok, recovers.broken(promise)
    assert recovers.reward == 1.0, recovers.broken(promise)
    assert recovers.metrics["model_call_errors"] == 1.0, recovers.broken("The failed call must be counted.")


@pytest.mark.rows("bad-setup")
def test_a_failing_setup_is_an_error_before_the_agent_starts(row: Rows, main: RecordedEvaluation) -> None:
    assert_unscored(row("bad-setup"), ("TaskError: ",), "The task's setup fails")
    assert main.asked("bad-setup") == [], row("bad-setup").broken("The agent was started though its setup had failed.")


@pytest.mark.rows("killed")
def test_a_sandbox_that_dies_in_mid_run_is_a_typed_error_and_never_a_reward(
    row: Rows, main: RecordedEvaluation, runs: Evaluations
) -> None:
    if not runs.subject.confined:
        pytest.skip("only a confined local sandbox can be killed from here")
    assert main.asked("killed"), row("killed").broken("The agent had not asked its model: nothing was killed.")
    # Once the agent has run a command, its programs can have ended the sandbox.
    assert_unscored(row("killed"), ("SandboxError: ", "SandboxEndedError: "), "The sandbox was killed")
