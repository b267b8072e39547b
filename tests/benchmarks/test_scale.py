"""The benchmark of many rollouts at once, with a few: every one is accounted for, and nothing is left."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.programs import finished

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "scale.py"


def test_every_rollout_is_scored_or_failed_and_nothing_is_left_of_it() -> None:
    size = ("--rollouts", "12", "--turns", "4", "--seconds", "1.2", "--spread", "0.4")
    done = finished([sys.executable, str(PROGRAM), "--json", *size], Path.cwd(), os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["ratios"]["unaccounted"], found["ratios"]["left"]) == (0.0, 0.0), found
    assert "{'killed': 2, 'scored': 10}" in found["detail"]["faulty, ours"]
    assert "{'scored': 12}" in found["detail"]["steady, ours"]
