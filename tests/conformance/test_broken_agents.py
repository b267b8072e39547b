"""An agent that is broken on purpose: what `CliAgentEnv` sets right passes, what it cannot is named to the author."""

from pathlib import Path

import pytest

from tests.conformance.suite import Report, conformance

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("sandboxes")]

SOUND = "test_a_sound_answer_is_a_finished_rollout_with_its_reward"
KEY = "test_the_providers_key_is_sent_to_the_provider_and_is_nowhere_in_the_sandbox"
LEFT = "test_no_process_that_the_agent_left_lives_when_it_is_scored"
UNREACHABLE = "test_an_endpoint_that_cannot_be_reached_is_a_typed_error_and_never_a_reward"
LIMITED = "test_a_time_limit_hides_no_failing_endpoint"
FAILING = "test_an_endpoint_that_fails_for_good_is_a_typed_error_and_never_a_reward"
NO_CALL = "test_no_rollout_without_a_model_call_is_sound"


def broken(directory: Path, *faults: str, seconds: float = 100.0, only: str = "") -> Report:
    """The suite's report on the agent with these faults; `only` chooses promises, and so evaluations, as `-k` does."""
    arguments = ["--vf-args", f"--env.agent.harness.faults '{' '.join(faults)}'", "--agent-seconds", str(seconds)]
    arguments += ["-k", only] if only else []
    return conformance(directory, "--harness", "broken-agent", *arguments)


def evaluations(directory: Path) -> set[str]:
    """Those that were made."""
    return {path.name for path in directory.glob("runs/conformance0/*")}


def test_an_agent_that_asks_no_model_and_exits_0_is_an_error_and_the_author_is_told(tmp_path: Path) -> None:
    report = broken(tmp_path, "quiet", only=f"{SOUND} or {NO_CALL}")
    assert report.exit_code == 1
    message = report.failure(SOUND)
    assert "An agent that was given a sound model must end as a sound rollout." in message
    assert "HarnessError: the agent ended without a single model call (exit 0)" in message
    assert report.passed == {NO_CALL}
    assert evaluations(tmp_path) == {"main"}


def test_an_agent_that_hangs_and_runs_no_command_is_told_both(tmp_path: Path) -> None:
    report = broken(tmp_path, "lingers", "deaf", seconds=15.0, only=f"{SOUND} or {LEFT}")
    assert report.exit_code == 1
    message = report.failure(SOUND)
    assert "The agent must end by itself after its model's answer; here something else ended it." in message
    assert "stop=agent_timeout reward=0.0" in message
    assert "failed checks: {'answer': " in message
    assert "The model's command was not run" in report.failure(LEFT)


def test_an_agent_that_leaks_the_key_is_found_out_and_what_it_swallows_or_leaves_is_set_right(tmp_path: Path) -> None:
    report = broken(tmp_path, "leaks", "swallows")
    assert report.exit_code == 1
    assert set(report.failed) == {SOUND, KEY}
    assert "The provider's key can be read in the sandbox, by the agent (agent) or after it (later)." in (
        report.failure(KEY)
    )
    assert {LEFT, UNREACHABLE} <= report.passed
    assert evaluations(tmp_path) == {"main", "dead", "interrupted", "compacting"}
    assert sum(name.startswith(FAILING) for name in report.passed) == 3
    assert LIMITED in report.passed | report.skipped  # a busy machine skips it


def test_an_agent_that_cannot_be_run_at_all_ends_the_suite_with_the_reason(tmp_path: Path) -> None:
    report = conformance(tmp_path, "--harness", "no-such-agent", "-k", SOUND)
    assert report.exit_code == 2
    assert "vf-eval ended with 1 before any rollout" in report.output
    assert "harness 'no-such-agent' not found" in report.output
    assert not report.passed
