"""The benchmark of many rollouts at once, with a few: every one is accounted for, and nothing is left."""

import pytest

from tests.benchmarks.forked import result_of

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]


def test_every_rollout_is_scored_or_failed_and_nothing_is_left_of_it() -> None:
    size = ("--rollouts", "12", "--turns", "4", "--seconds", "1.2", "--spread", "0.4")
    found = result_of("scale.py", *size)
    assert (found["ratios"]["unaccounted"], found["ratios"]["left"]) == (0.0, 0.0), found
    assert "{'killed': 2, 'scored': 10}" in found["detail"]["faulty, ours"]
    assert "{'scored': 12}" in found["detail"]["steady, ours"]
