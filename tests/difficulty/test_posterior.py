"""The probability that a group has mixed outcomes."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opencode_runs.difficulty.recommend import Prior, mixed_probability

JEFFREYS = Prior()


@given(st.integers(0, 16), st.integers(0, 16), st.integers(2, 32))
def test_the_mean_lies_within_zero_and_one_and_mirrors_with_the_outcomes(passes: int, fails: int, group: int) -> None:
    found = mixed_probability(passes, passes + fails, group, JEFFREYS, 0.9)
    mirrored = mixed_probability(fails, passes + fails, group, JEFFREYS, 0.9)
    assert 0 <= found.low <= found.high <= 1
    assert 0 <= found.mean <= 1
    assert found.mean == pytest.approx(mirrored.mean)
    assert found.low == pytest.approx(mirrored.low, abs=1e-6)


@pytest.mark.parametrize(("passes", "attempts", "group"), [(0, 8, 8), (2, 8, 16), (4, 4, 2), (0, 0, 8)])
def test_mean_and_interval_agree_with_drawing_pass_rates_at_random(passes: int, attempts: int, group: int) -> None:
    chance = random.Random(1)
    draws = sorted(
        1 - q**group - (1 - q) ** group
        for q in (chance.betavariate(0.5 + passes, 0.5 + attempts - passes) for _ in range(40_000))
    )
    found = mixed_probability(passes, attempts, group, JEFFREYS, 0.9)
    assert found.mean == pytest.approx(math.fsum(draws) / len(draws), abs=0.01)
    assert found.low == pytest.approx(draws[len(draws) // 20], abs=0.02)
    assert found.high == pytest.approx(draws[-len(draws) // 20], abs=0.02)


def test_the_same_rate_seen_more_often_is_more_certain() -> None:
    few = mixed_probability(2, 4, 8, JEFFREYS, 0.9)
    many = mixed_probability(32, 64, 8, JEFFREYS, 0.9)
    assert many.high - many.low < few.high - few.low


def test_never_passing_in_many_attempts_counts_for_more_than_in_few() -> None:
    assert mixed_probability(0, 64, 8, JEFFREYS, 0.9).mean < mixed_probability(0, 4, 8, JEFFREYS, 0.9).mean


def test_a_larger_group_is_more_likely_mixed() -> None:
    assert mixed_probability(1, 8, 16, JEFFREYS, 0.9).mean > mixed_probability(1, 8, 4, JEFFREYS, 0.9).mean
