"""The table of outcomes: what follows from it, and that the documents show it."""

from pathlib import Path

import pytest
import verifiers.v1 as vf
from agent_sandbox.toolbox.scoring import attached
from opencode_env.cli_agent.outcomes import Outcome, documented, retries_of_outcomes
from opencode_env.cli_agent.rollout import Rollout, rollout_of
from verifiers.v1.configs.retries import RetryConfig, RetryRule

from tests.rubrics.conftest import trace_of

ROOT = Path(__file__).parents[2]


def test_the_documents_show_the_table() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]
    assert any(documented() in page.read_text() for page in pages), (
        "the table of outcomes and that of the documents differ; opencode_env.cli_agent.outcomes.documented() makes it"
    )


@pytest.mark.parametrize("outcome", Outcome, ids=str)
def test_a_row_is_a_stop_that_is_scored_or_an_error_that_is_not(outcome: Outcome) -> None:
    row = outcome.row
    assert row.scored == (not row.errors)
    assert not (row.stop and row.errors)
    assert row.again or row.errors
    assert "|" not in "".join((row.when, row.advice, row.also))


def test_what_is_not_tried_again_follows_from_the_table_and_a_rule_of_the_users_is_kept() -> None:
    own = RetryRule(type="AgentError", max_retries=3)
    rules = retries_of_outcomes(RetryConfig(rules=[own])).rules
    assert rules[0] == own
    refused = {name for outcome in Outcome if not outcome.row.again for name in outcome.row.errors}
    assert {rule.type for rule in rules if rule.max_retries == 0} == refused
    assert {"AgentError", "BrokenWorldError", "SandboxFileError"} <= refused
    assert retries_of_outcomes(RetryConfig(rules=rules)).rules == rules


async def test_a_rollout_is_found_at_its_trace_is_in_no_dump_and_ends_once() -> None:
    trace = trace_of(vf.TaskData(idx=0, prompt="x"))
    before = trace.model_dump_json()
    rollout = Rollout()
    rollout.begin(trace)
    assert rollout_of(trace) is rollout
    assert trace.model_dump_json() == before
    assert attached(trace_of(vf.TaskData(idx=0, prompt="x"))) is None
    await rollout.end()
    await rollout.end()
    assert (rollout.gateway, rollout.tunnel, rollout.live_sub) == (None, None, None)
