"""The benchmark of rollouts in Prime Sandboxes, with a few: every one is scored, and nothing is left of any."""

import pytest

from tests.benchmarks.forked import result_of

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]


def test_every_rollout_is_scored_and_nothing_is_left_at_the_server_or_in_the_worker() -> None:
    size = ("--rollouts", "4", "--at-once", "4", "--local", "2", "--turns", "2", "--seconds", "0.5", "--opencode", "0")
    found = result_of("remote.py", *size)
    ratios = found["ratios"]
    assert set(ratios) == set(found["goals"])
    assert (ratios["unaccounted"], ratios["left"]) == (0.0, 0.0), found
    assert "prime {'scored': 4}, local {'scored': 2}" in found["detail"]["outcomes"]
    assert set(found["detail"]["requests of one rollout"]) == {"create", "statuses", "Start", "delete"}
