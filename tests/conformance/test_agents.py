"""Every agent of this project, and verifiers' own, keeps the promises of the suite.

OpenCode plays once, for `opencode-env`: what `opencode-rlm` has of its own is the environment and the harness.
"""

from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.conformance.suite import conformance
from tests.support.light_opencode import light_opencode_in_place
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
BUSY = {
    "test_an_agent_that_waits_for_its_model_is_ended_and_scored",
    "test_an_agent_that_waits_for_its_command_is_ended_with_it_and_scored",
    "test_a_time_limit_hides_no_failing_endpoint",
}
"""They say so, and are skipped, where the machine is too busy for their time limit."""


@pytest.mark.parametrize(
    ("arguments", "skipped"),
    [
        pytest.param(["--env", "opencode-env"], set(), marks=pytest.mark.opencode, id="opencode-env"),
        pytest.param(["--env", "opencode-rlm"], set(), id="opencode-rlm"),
        pytest.param(["--harness", "bash"], set(), id="bash"),
        pytest.param(["--env", "shell-agent"], WITHOUT_COMMANDS | WITHOUT_STREAMS | WITHOUT_RETRIES, id="shell-agent"),
    ],
)
def test_an_agent_keeps_every_promise(tmp_path: Path, arguments: list[str], skipped: set[str]) -> None:
    with light_opencode_in_place(sends=6) if "opencode-rlm" in arguments else nullcontext():
        report = conformance(tmp_path, *arguments, plugins=[PLUGINS])
    assert report.exit_code == 0, report.output
    assert report.failed == {}
    assert len(report.passed) + len(report.skipped) == 35
    assert skipped <= report.skipped <= skipped | BUSY, report.output
