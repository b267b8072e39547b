"""What the agent starts ends with it; it sees no neighbour, and never the provider's key."""

import pytest

from opencode_env.conformance.evidence import Evaluations, RecordedEvaluation
from opencode_env.conformance.plugin import PlayedRow, Rows


def assert_check(rollout: PlayedRow, names: tuple[str, ...], promise: str) -> None:
    """These checks of the row ran and succeeded."""
    for name in names:
        result = rollout.checks.get(name)
        assert result is not None, rollout.broken(f"{promise}\nThe check {name!r} did not run.")
        assert result["exit_code"] == 0, rollout.broken(promise)


def _agents_view(runs: Evaluations) -> tuple[str, ...]:
    """The check of what the agent itself saw, where it could look."""
    return ("agent",) if runs.runs_commands else ()


@pytest.mark.rows("leaves")
@pytest.mark.usefixtures("commands")
def test_no_process_that_the_agent_left_lives_when_it_is_scored(row: Rows) -> None:
    assert_check(row("leaves"), ("ran",), "The model's command was not run: is the dialect the agent's?")
    promise = "What the agent left running (setsid, nohup, ignored signals) must be dead before the first check."
    assert_check(row("leaves"), ("ended", "still"), promise)


@pytest.mark.rows("leaves")
def test_a_service_that_the_setup_started_outlives_the_agent(row: Rows) -> None:
    promise = "A process that the task's setup started is not the agent's and must live on until the sandbox goes."
    assert_check(row("leaves"), ("service",), promise)


@pytest.mark.rows("near-1", "near-2")
@pytest.mark.parametrize(("own", "other"), [("1", "2"), ("2", "1")])
def test_two_rollouts_at_once_do_not_see_each_other(row: Rows, runs: Evaluations, own: str, other: str) -> None:
    rollout = row(f"near-{own}")
    assert rollout.ok, rollout.broken("Two rollouts at once disturbed each other.")
    promise = "A rollout saw files or processes of its neighbour."
    assert_check(rollout, ("files", "processes", "own", *_agents_view(runs)), promise)
    assert rollout.trace is not None
    assert f"row near-{other}:" not in rollout.trace.model_dump_json(), rollout.broken("Its trace holds a neighbour's.")


@pytest.mark.rows("sound")
def test_the_providers_key_is_sent_to_the_provider_and_is_nowhere_in_the_sandbox(
    row: Rows, main: RecordedEvaluation, runs: Evaluations
) -> None:
    sent = {request.headers.get("authorization") for request in main.asked("sound")}
    assert sent == {f"Bearer {main.key}"}, row("sound").broken(f"The provider was sent another key: {sent}")
    promise = "The provider's key can be read in the sandbox, by the agent (agent) or after it (later)."
    assert_check(row("sound"), ("later", *_agents_view(runs)), promise)


def test_nothing_is_left_when_the_run_is_over(main: RecordedEvaluation) -> None:
    assert_nothing_left(main)


def test_nothing_is_left_of_a_run_whose_endpoint_could_not_be_reached(dead: RecordedEvaluation) -> None:
    assert_nothing_left(dead)


def assert_nothing_left(evidence: RecordedEvaluation) -> None:
    """The evaluation ended well, and no process, file or port of it outlived it."""
    assert evidence.finished.exit_code == 0, evidence.finished.log[-3000:]
    assert list(evidence.leftovers) == [], f"processes or files outlived their run: {evidence.leftovers}"
    assert evidence.open_ports == [], f"the interception still listens on {evidence.open_ports}"
