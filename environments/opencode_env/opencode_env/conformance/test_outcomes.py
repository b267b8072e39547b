"""What the policy did is data: a finished rollout, scored in its sandbox, with the metrics of every agent.

So is what it did until its time limit ended it.
"""

import pytest
from rollout_sandbox.outcomes import Outcome

from opencode_env.cli_agent.outcomes import NO_ANSWER, RunOutcome, all_outcomes, flags_of_outcomes
from opencode_env.conformance.evidence import LIMIT_SECONDS, MAX_TURNS, SILENT_SECONDS, Evaluations, RecordedEvaluation
from opencode_env.conformance.plugin import PlayedRow, Rows

METRICS = (
    "num_turns",
    "agent_error",
    *flags_of_outcomes((), all_outcomes()),
    "empty_answer",
    "model_call_errors",
    "total_tool_calls",
    "unique_tools_used",
    "has_tool_calls",
)


def assert_ended(rollout: PlayedRow, outcome: Outcome, promise: str, stop: str = "") -> None:
    """The rollout ended as the row of this outcome says; one that another part stops, by this condition."""
    stop = stop or outcome.stop
    assert outcome.scored
    assert rollout.ok, rollout.broken(promise)
    assert rollout.stop == stop, rollout.broken(f"{promise}: stop condition {stop!r}, not {rollout.stop!r}")
    assert rollout.reward is not None, rollout.broken(promise)
    assert not outcome.metric or rollout.metrics[outcome.metric] == 1.0, rollout.broken(promise)


def assert_timed_out(rollout: PlayedRow) -> None:
    """It was ended by the agent's time limit, and scored."""
    promise = "The agent's own time limit is the policy's doing: it ends the agent, and the rollout is scored."
    assert rollout.ok, rollout.broken(promise)
    row = RunOutcome.AGENT_TIMEOUT
    assert rollout.stop == row.stop, rollout.broken(promise)
    assert rollout.metrics[row.metric] == 1.0, rollout.broken(f"The metric {row.metric} must say so.")
    assert rollout.metrics["agent_error"] == 0.0, rollout.broken("A time limit is not an error of the agent.")


@pytest.mark.rows("sound")
def test_a_sound_answer_is_a_finished_rollout_with_its_reward(row: Rows) -> None:
    sound = row("sound")
    assert sound.ok, sound.broken("An agent that was given a sound model must end as a sound rollout.")
    assert sound.stop == "agent_completed", sound.broken(
        "The agent must end by itself after its model's answer; here something else ended it."
    )
    assert sound.reward == 1.0, sound.broken("The model's right answer must reach the sandbox and be scored there.")


@pytest.mark.rows("sound")
def test_every_rollout_has_the_metrics_of_every_agent(row: Rows, runs: Evaluations) -> None:
    sound = row("sound")
    missing = [name for name in METRICS if name not in sound.metrics]
    assert missing == [], sound.broken(f"Metrics that every CliAgentEnv rollout has are missing: {missing}.")
    turns = sound.metrics["num_turns"]
    assert turns == (2.0 if runs.runs_commands else 1.0), sound.broken("Every turn of the model must be in the trace.")
    assert (sound.metrics["agent_error"], sound.metrics["agent_timeout"]) == (0.0, 0.0), sound.broken(
        "A sound rollout is marked as failed."
    )


@pytest.mark.rows("wrong")
def test_a_wrong_answer_is_a_reward_of_0_and_no_error(row: Rows) -> None:
    wrong = row("wrong")
    assert wrong.ok, wrong.broken("A wrong answer is the policy's doing: a sound rollout.")
    assert wrong.reward == 0.0, wrong.broken("A wrong answer must score 0.")


def test_no_rollout_without_a_model_call_is_sound(main: RecordedEvaluation, runs: Evaluations) -> None:
    for evidence in runs.made.values():
        for episode in evidence.finished.episodes:
            for trace in episode.traces[:1]:
                rollout = PlayedRow(evidence, trace.task.data.id or "")
                # A call that is still waiting when the time is over is in no trace.
                asked = trace.calls or trace.stop_condition == RunOutcome.AGENT_TIMEOUT.stop
                assert asked or not rollout.ok, rollout.broken("An agent that never asked its model is scored.")


@pytest.mark.rows("turns")
@pytest.mark.usefixtures("commands")
def test_the_limit_of_turns_is_a_stop_and_is_scored(row: Rows) -> None:
    promise = "--env.agent.max-turns must end the agent, and it is scored"
    assert_ended(row("turns"), RunOutcome.LIMIT, promise, stop="max_turns")
    assert row("turns").metrics["num_turns"] == MAX_TURNS, row("turns").broken("Not one turn more than the limit.")


@pytest.mark.rows("budget")
@pytest.mark.usefixtures("commands")
def test_a_spent_budget_of_tokens_is_a_stop_and_is_scored(row: Rows) -> None:
    promise = "--env.agent.max-total-tokens must end the agent, and it is scored"
    assert_ended(row("budget"), RunOutcome.LIMIT, promise, stop="max_total_tokens")


@pytest.mark.rows("window")
def test_a_conversation_that_outgrows_the_models_window_is_a_stop_and_is_scored(
    row: Rows, main: RecordedEvaluation
) -> None:
    if main.policy.commands.get("window"):
        assert_ended(row("window"), RunOutcome.CONTEXT_FULL, "A context window that is full is the policy's doing")
        return
    promise = "A prompt that does not fit before the model's first answer is not the agent's doing, and no score."
    assert row("window").error.startswith(f"ProviderError: {NO_ANSWER}"), row("window").broken(promise)
    assert row("window").reward is None, row("window").broken(promise)


@pytest.mark.rows("silent")
def test_an_agent_that_waits_for_its_model_is_ended_and_what_sent_no_stream_is_an_error(
    row: Rows, main: RecordedEvaluation
) -> None:
    silent = row("silent")
    if silent.error.startswith("HarnessError: the agent's time was over before its first model call"):
        pytest.skip(f"this machine is too busy: the agent did not start within {SILENT_SECONDS:g} s")
    own_end = f"An agent waits for its model for longer than {SILENT_SECONDS:g} s, and does not give up before."
    assert not silent.error.startswith("HarnessError: "), silent.broken(own_end)
    if not main.policy.streamed.get("silent"):
        assert_timed_out(silent)
        return
    promise = (
        "Where a first answer is to be streamed, an endpoint that sends nothing of it until the time is over fails."
    )
    assert silent.error.startswith("ProviderError: "), silent.broken(promise)
    assert silent.reward is None, silent.broken(promise)


@pytest.mark.rows("late")
@pytest.mark.usefixtures("commands")
def test_an_agent_that_waits_for_its_command_is_ended_with_it_and_scored(row: Rows) -> None:
    late = row("late")
    assert_timed_out(late)
    if late.metrics["num_turns"] == 0:
        pytest.skip(f"this machine is too busy: the agent did not come to its command within {LIMIT_SECONDS:g} s")
    assert late.reward == 1.0, late.broken("What the agent ran must be gone, and what it wrote must be there.")
