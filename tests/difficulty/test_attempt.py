"""What of an episode counts as an attempt."""

import json
from typing import Any

import pytest
from opencode_runs.difficulty.attempt import Attempt, Failure, tries
from opencode_runs.traces.record import EpisodeRecord, LineError, VersionError, parse_line

from tests.difficulty.lines import Line, episode, seat, trace

ERROR = {"type": "SandboxError", "message": "gone"}


def found(line: Line, chosen: str | None = None) -> list[Attempt | Failure]:
    return [outcome for _, outcome in tries(parse_line(json.dumps(line).encode(), EpisodeRecord), chosen)]


def test_a_scored_trace_is_an_attempt_with_its_turns_and_tokens() -> None:
    assert found(episode("a", trace(0.5))) == [Attempt(0.5, turns=1, tokens=110, timed_out=False)]


def test_rewards_are_summed_by_weight() -> None:
    rewards = {"a": {"score": 1.0, "weight": 0.5}, "b": {"score": 1.0, "weight": 0.25}}
    [outcome] = found(episode("a", trace(rewards=rewards)))
    assert isinstance(outcome, Attempt)
    assert outcome.reward == 0.75


@pytest.mark.parametrize(
    "rewards",
    [{}, {"a": None}, {"a": {"score": 1.0}, "b": None}, {"a": {"score": None, "weight": 1.0}}],
    ids=["none", "not computed", "one of two not computed", "NaN, which JSON writes as null"],
)
def test_a_trace_without_a_whole_reward_is_unscored(rewards: dict[str, Any]) -> None:
    assert found(episode("a", trace(rewards=rewards))) == [Failure("no reward", unscored=True)]


def test_a_failed_trace_is_an_error_named_after_its_last_error() -> None:
    failed = trace(0.0, ok=False, errors=[{"type": "HarnessError"}, ERROR])
    assert found(episode("a", failed)) == [Failure("SandboxError")]


def test_an_agent_timeout_is_an_attempt() -> None:
    assert found(episode("a", trace(0.0, stop_condition="agent_timeout", is_timeout=True))) == [
        Attempt(0.0, turns=1, tokens=110, timed_out=True)
    ]


@pytest.mark.parametrize("stage", ["setup", "finalize", "scoring", "boot"])
def test_any_other_stage_out_of_time_is_an_error_though_verifiers_calls_it_ok(stage: str) -> None:
    assert found(episode("a", trace(0.0, stop_condition=f"{stage}_timeout"))) == [Failure(f"{stage}_timeout")]


def test_traces_of_the_sub_seat_are_no_attempts() -> None:
    sub = trace(0.0, agent=seat("sub", "tiny"))
    assert found(episode("a", sub, trace(1.0), sub)) == [Attempt(1.0, 1, 110, timed_out=False)]


def test_a_failed_sub_call_does_not_spoil_the_main_attempt() -> None:
    sub = trace(ok=False, agent=seat("sub"), errors=[ERROR])
    assert found(episode("a", sub, trace(1.0))) == [Attempt(1.0, 1, 110, timed_out=False)]


def test_a_failed_judge_seat_leaves_the_reward_in_doubt() -> None:
    judge = trace(ok=False, agent=seat("judge", trainable=False), errors=[ERROR])
    assert found(episode("a", trace(1.0), judge)) == [Failure("another seat's error")]


def test_a_dropped_trace_says_nothing_about_the_task() -> None:
    assert found(episode("a", trace(0.0, dropped="no signal"))) == [Failure("dropped", unscored=True)]


def test_an_error_of_the_env_spoils_a_sound_trace() -> None:
    line = episode("a", trace(1.0), ok=False, errors=[{"type": "EnvError"}])
    assert found(line) == [Failure("EnvError")]


def test_errors_of_earlier_tries_of_an_episode_that_ended_well_do_not_count() -> None:
    line = episode("a", trace(1.0, errors=[ERROR]), errors=[{"type": "EnvError"}])
    assert found(line) == [Attempt(1.0, 1, 110, timed_out=False)]


def test_an_episode_that_never_had_a_trace_is_one_error() -> None:
    assert found(episode("a", ok=False, errors=[{"type": "EnvError"}])) == [Failure("EnvError")]


def test_each_trace_of_a_best_of_n_seat_is_an_attempt_and_a_failed_one_does_not_spoil_the_others() -> None:
    line = episode("a", trace(1.0), trace(ok=False, errors=[ERROR]), trace(0.0))
    assert [type(outcome) for outcome in found(line)] == [Attempt, Failure, Attempt]


def test_without_an_agent_seat_the_first_trainable_one_counts() -> None:
    line = episode("a", trace(0.0, agent=seat("proposer", trainable=False)), trace(1.0, agent=seat("solver")))
    assert found(line) == [Attempt(1.0, 1, 110, timed_out=False)]


def test_a_named_seat_counts_instead() -> None:
    line = episode("a", trace(1.0), trace(0.0, agent=seat("checker")))
    assert found(line, "checker") == [Attempt(0.0, 1, 110, timed_out=False)]


@pytest.mark.parametrize(
    ("line", "reason", "torn"),
    [
        (b'{"id": "x", "task": {"ke', "not whole JSON", True),
        (b"[1, 2]", "not a verifiers episode", False),
        (b'{"prompt": "v0 result", "reward": 1.0}', "not a verifiers episode", False),
        (b'{"id": "x", "task": {"type": "T", "data": {}}, "traces": []}', "names no task", False),
        (b"\xff\xfe\x00", "not whole JSON", True),
    ],
    ids=["cut off", "a list", "another format", "no key", "not text"],
)
def test_a_line_that_is_no_episode_says_why(line: bytes, reason: str, torn: bool) -> None:
    with pytest.raises(LineError, match=reason) as error:
        parse_line(line, EpisodeRecord)
    assert error.value.torn is torn


def test_a_trace_of_another_schema_is_refused() -> None:
    with pytest.raises(VersionError, match="schema 2"):
        parse_line(json.dumps(episode("a", trace(version=2))).encode(), EpisodeRecord)


def test_a_program_that_never_asked_the_model_made_no_attempt() -> None:
    silent = trace(0.0, nodes=[], num_total_tokens=0)
    assert found(episode("a", silent)) == [Failure("no model call")]


def test_an_agent_that_ran_out_of_time_before_its_first_reply_made_an_attempt() -> None:
    [outcome] = found(episode("a", trace(0.0, nodes=[], num_total_tokens=0, stop_condition="agent_timeout")))
    assert isinstance(outcome, Attempt)
