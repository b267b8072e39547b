"""The figures of one task."""

import itertools
import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_runs.difficulty.rate import Attempt, Failure, Tally, pass_at_k


def attempt(reward: float, tokens: int | None = 10) -> Attempt:
    return Attempt(reward, turns=2, tokens=tokens, timed_out=False)


def tally_of(*outcomes: Attempt | Failure, threshold: float = 1.0) -> Tally:
    tally = Tally()
    for outcome in outcomes:
        tally.add(outcome, threshold)
    return tally


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.integers(1, 9))
def test_pass_at_k_is_the_share_of_k_subsets_with_a_pass(outcomes: list[bool], k: int) -> None:
    found = pass_at_k(len(outcomes), sum(outcomes), k)
    subsets = list(itertools.combinations(outcomes, k))
    if not subsets:
        assert found is None
    else:
        assert found == pytest.approx(sum(map(any, subsets)) / len(subsets))


@given(st.lists(st.floats(-5, 5), min_size=1, max_size=40))
def test_mean_and_standard_error_equal_the_textbook_ones(rewards: list[float]) -> None:
    tally = tally_of(*map(attempt, rewards))
    assert tally.avg_reward == pytest.approx(statistics.fmean(rewards), abs=1e-9)
    if len(rewards) == 1:
        assert tally.reward_stderr is None
    else:
        expected = statistics.stdev(rewards) / math.sqrt(len(rewards))
        assert tally.reward_stderr == pytest.approx(expected, abs=1e-7)


@given(st.lists(st.sampled_from([0.0, 0.5, 1.0]), max_size=20), st.sampled_from([0.25, 0.5, 1.0]))
def test_passes_are_rewards_at_or_above_the_threshold(rewards: list[float], threshold: float) -> None:
    tally = tally_of(*map(attempt, rewards), threshold=threshold)
    assert tally.passes == sum(reward >= threshold for reward in rewards)


def test_a_weighted_sum_that_misses_the_threshold_by_rounding_passes() -> None:
    assert 0.7 + 0.2 + 0.1 < 1.0
    assert tally_of(attempt(0.7 + 0.2 + 0.1)).passes == 1


def test_errors_and_unscored_tries_change_no_figure_but_their_own() -> None:
    tally = tally_of(attempt(1.0), Failure("SandboxError"), Failure("no reward", unscored=True))
    assert (tally.attempts, tally.avg_reward, tally.errors, tally.unscored) == (1, 1.0, 1, 1)


def test_a_task_without_attempts_has_no_mean_and_no_rate() -> None:
    tally = Tally()
    assert (tally.avg_reward, tally.pass_rate, tally.mean_turns, tally.mean_tokens) == (None, None, None, None)


def test_mean_tokens_is_over_the_attempts_that_reported_them() -> None:
    assert tally_of(attempt(1.0, tokens=30), attempt(1.0, tokens=None)).mean_tokens == 30
