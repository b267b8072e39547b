"""Cleanup hooks run once each by priority, whatever happened, and an interrupted run leaves nothing."""

import pytest

from opencode_env.conformance.evidence import INTERRUPTED_ROWS, Evaluations, RecordedEvaluation
from opencode_env.conformance.plugin import PlayedRow, Rows

HOOKS = ["first", "rubric", "last"]
_INTERRUPTED = [row.name for row in INTERRUPTED_ROWS]


def assert_hooks(evidence: RecordedEvaluation, name: str, *, alive: bool = True) -> None:
    """The hooks of a row ran, in order, in a sandbox that still answers."""
    seen = evidence.hooks(name)
    ran = [entry["hook"] for entry in seen]
    assert ran == HOOKS, PlayedRow(evidence, name).broken(
        f"Cleanup hooks must run once each by priority, whatever happened: {HOOKS}, not {ran}."
    )
    answers = [entry["sandbox"] for entry in seen]
    assert not alive or answers == ["alive"] * len(HOOKS), PlayedRow(evidence, name).broken(
        f"Cleanup hooks must run while the sandbox is alive; it answered them {answers}."
    )


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.rows(name)) for name in ("sound", "silent", "refused", "bad-setup")]
)
def test_cleanup_hooks_run_in_order_whatever_happened(main: RecordedEvaluation, name: str) -> None:
    assert_hooks(main, name)


@pytest.mark.rows("killed")
def test_cleanup_hooks_run_for_a_sandbox_that_was_killed(main: RecordedEvaluation, runs: Evaluations) -> None:
    if not runs.subject.confined:
        pytest.skip("only a confined local sandbox can be killed from here")
    assert_hooks(main, "killed", alive=False)


@pytest.mark.rows("bad-hook")
def test_a_cleanup_hook_that_raises_changes_no_verdict_and_stops_no_other(main: RecordedEvaluation, row: Rows) -> None:
    assert_hooks(main, "bad-hook")
    promise = "A cleanup hook that raises is reported, and changes no verdict."
    assert (row("bad-hook").ok, row("bad-hook").reward) == (True, 1.0), row("bad-hook").broken(promise)
    assert "RuntimeError: this hook raises" in main.finished.log


@pytest.mark.parametrize("name", _INTERRUPTED)
def test_cleanup_hooks_of_an_interrupted_rollout_run_in_its_live_sandbox(
    interrupted: RecordedEvaluation, name: str
) -> None:
    assert_hooks(interrupted, name)


def test_an_interrupted_run_leaves_no_process_no_file_and_no_port(interrupted: RecordedEvaluation) -> None:
    assert interrupted.finished.exit_code == 130, interrupted.finished.log[-3000:]
    assert interrupted.asked("asking"), "the agent had not asked its model when the run was interrupted"
    assert list(interrupted.leftovers) == [], f"left by a run that was interrupted: {interrupted.leftovers}"
    assert interrupted.open_ports == [], f"the interception still listens on {interrupted.open_ports}"


def test_an_interrupted_rollout_is_never_scored(interrupted: RecordedEvaluation) -> None:
    for name in _INTERRUPTED:
        rollout = PlayedRow(interrupted, name)
        assert rollout.reward is None, rollout.broken("A rollout that was interrupted has a reward.")
