"""Every agent of this project, and verifiers' own, keeps the promises of the suite.

OpenCode plays for `opencode-env`: what `opencode-rlm` has of its own is the environment and the harness, under which
the light program keeps every promise. In `make test` OpenCode and verifiers' `bash` are not asked again for promises
that are `CliAgentEnv`'s whatever its agent does, nor OpenCode for what `tests/opencode` plays with it; in
`make test-whole` they are.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.conformance import suite
from tests.conformance.suite import conformance
from tests.support.light_opencode import light_opencode_in_place
from tests.support.sizes import WHOLE
from tests.support.user_home import PLUGINS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.usefixtures("sandboxes")]

WITHOUT_COMMANDS = {
    "test_no_process_that_the_agent_left_lives_when_it_is_scored",
    "test_the_limit_of_turns_is_a_stop_and_is_scored",
    "test_a_spent_budget_of_tokens_is_a_stop_and_is_scored",
    "test_an_agent_that_waits_for_its_command_is_ended_with_it_and_scored",
}
WITHOUT_STREAMS = {"test_a_stream_without_a_finish_reason_is_a_typed_error_and_never_a_reward"}
WITHOUT_RETRIES = {"test_a_fault_that_passes_is_a_sound_rollout_where_the_agent_tries_again"}
WITHOUT_SECTIONS = {
    "test_each_answer_is_of_one_section_or_is_one_summary",
    "test_the_tasks_words_stand_in_every_section_and_in_every_request_for_a_summary",
    "test_a_forged_request_for_a_summary_is_an_ordinary_call",
}
WITHOUT_SUMMARIES = WITHOUT_SECTIONS | {"test_every_answer_around_a_summary_is_on_the_trace_once_and_none_is_a_fork"}
BUSY = {
    "test_an_agent_that_waits_for_its_model_is_ended_and_what_sent_no_stream_is_an_error",
    "test_an_agent_that_waits_for_its_command_is_ended_with_it_and_scored",
    "test_a_time_limit_hides_no_failing_endpoint",
}
"""They say so, and are skipped, where the machine is too busy for their time limit."""

OF_THE_ENVIRONMENT = {
    "test_two_rollouts_at_once_do_not_see_each_other": 2,
    "test_a_sandbox_that_dies_in_mid_run": 1,
    "test_cleanup_hooks_run_for_a_sandbox_that_was_killed": 1,
    "test_a_cleanup_hook_that_raises": 1,
    "test_a_wrong_answer": 1,
    "test_a_failing_setup": 1,
    "bad-setup": 1,
    "silent": 1,
    "interrupted": 5,
}
"""Promises in which the agent has no part, by words of their names, and how many there are."""
OF_ANY_FAILING_MODEL = {"always-500": 1, "always-cut": 1, "test_a_time_limit_hides": 1, "be_reached": 2}
"""What an agent without retries and one with them show."""
OF_ANY_END = {
    "refused": 2,
    "waits_for_its_model": 1,
    "waits_for_its_command": 1,
    "limit_of_turns": 1,
    "budget_of_tokens": 1,
    "outgrows_the_models_window": 1,
    "the_agent_left": 1,
    "a_service": 1,
}
"""What the light program and OpenCode show."""
OF_SUMMARIES = {"test_compaction": 4}
"""What is skipped where an agent makes no summary."""
OF_TESTS_OPENCODE = OF_ANY_END | OF_ANY_FAILING_MODEL | {"without_a_finish_reason": 1}
"""What OpenCode shows in `tests/opencode`: test_infrastructure_failures, test_time_limit, test_policy_outcomes; what
is not there the light program shows, which sends as often as OpenCode does."""


@pytest.mark.parametrize(
    ("arguments", "skipped", "not_asked"),
    [
        pytest.param(
            *(["--env", "opencode-env"], WITHOUT_SUMMARIES, OF_THE_ENVIRONMENT | OF_TESTS_OPENCODE | OF_SUMMARIES),
            marks=pytest.mark.opencode,
            id="opencode-env",
        ),
        pytest.param(["--env", "opencode-rlm"], WITHOUT_SUMMARIES, OF_SUMMARIES, id="opencode-rlm"),
        pytest.param(
            *(["--harness", "bash"], WITHOUT_SECTIONS, OF_THE_ENVIRONMENT | OF_ANY_FAILING_MODEL | OF_ANY_END),
            id="bash",
        ),
        pytest.param(
            *(["--harness", "shell-agent"], WITHOUT_COMMANDS | WITHOUT_STREAMS | WITHOUT_RETRIES | WITHOUT_SUMMARIES),
            OF_SUMMARIES,
            id="shell-agent",
        ),
    ],
)
def test_an_agent_keeps_every_promise(
    tmp_path: Path, arguments: list[str], skipped: set[str], not_asked: dict[str, int]
) -> None:
    left_out = {} if WHOLE else not_asked
    skipped = skipped - WITHOUT_SUMMARIES if OF_SUMMARIES.items() <= left_out.items() else skipped
    arguments = [*arguments, "-k", f"not ({' or '.join(left_out)})"] if left_out else arguments
    with light_opencode_in_place(sends=6) if "opencode-rlm" in arguments else nullcontext():
        report = conformance(tmp_path, *arguments, plugins=[PLUGINS])
    assert report.exit_code == 0, report.output
    assert report.failed == {}
    assert len(report.passed) + len(report.skipped) == 40 - sum(left_out.values())
    assert skipped <= report.skipped <= skipped | BUSY, report.output


@pytest.mark.opencode
def test_an_agent_that_summarises_keeps_what_is_promised_of_its_sections(tmp_path: Path) -> None:
    switched_on = ["--vf-args", "--env.agent.harness.disable-compaction false"]
    arguments = [*switched_on, "--dialect", "forging:ForgingDialect", "-k", "test_compaction", "--agent-seconds", "600"]
    report = conformance(tmp_path, *arguments, plugins=[suite.PLUGINS])
    assert report.exit_code == 0, report.output
    assert report.passed == WITHOUT_SUMMARIES
