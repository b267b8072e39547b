"""The probability that a group has mixed outcomes."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_runs.difficulty.rated import mixed_probability


@given(st.integers(0, 16), st.integers(0, 16), st.integers(2, 32))
def test_the_mean_lies_within_zero_and_one_and_mirrors_with_the_outcomes(passes: int, fails: int, group: int) -> None:
    mean, low, high = mixed_probability(passes, passes + fails, group)
    mirrored, mirrored_low, _ = mixed_probability(fails, passes + fails, group)
    assert 0 <= low <= high <= 1
    assert 0 <= mean <= 1
    assert mean == pytest.approx(mirrored)
    assert low == pytest.approx(mirrored_low, abs=1e-6)


@pytest.mark.parametrize(("passes", "attempts", "group"), [(0, 8, 8), (2, 8, 16), (4, 4, 2), (0, 0, 8)])
def test_mean_and_interval_agree_with_drawing_pass_rates_at_random(passes: int, attempts: int, group: int) -> None:
    chance = random.Random(1)
    draws = sorted(
        1 - q**group - (1 - q) ** group
        for q in (chance.betavariate(0.5 + passes, 0.5 + attempts - passes) for _ in range(40_000))
    )
    mean, low, high = mixed_probability(passes, attempts, group)
    assert mean == pytest.approx(math.fsum(draws) / len(draws), abs=0.01)
    assert low == pytest.approx(draws[len(draws) // 20], abs=0.02)
    assert high == pytest.approx(draws[-len(draws) // 20], abs=0.02)


def test_the_same_rate_seen_more_often_is_more_certain() -> None:
    _, low, high = mixed_probability(2, 4, 8)
    _, many_low, many_high = mixed_probability(32, 64, 8)
    assert many_high - many_low < high - low


def test_never_passing_in_many_attempts_counts_for_more_than_in_few() -> None:
    assert mixed_probability(0, 64, 8)[0] < mixed_probability(0, 4, 8)[0]


def test_a_larger_group_is_more_likely_mixed() -> None:
    assert mixed_probability(1, 8, 16)[0] > mixed_probability(1, 8, 4)[0]
