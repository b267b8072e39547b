"""The benchmark of rollouts in Prime Sandboxes, with a few: every one is scored, and nothing is left of any."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.support.programs import finished

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "remote.py"


def test_every_rollout_is_scored_and_nothing_is_left_at_the_server_or_in_the_worker() -> None:
    size = ("--rollouts", "4", "--at-once", "4", "--local", "2", "--turns", "2", "--seconds", "0.5", "--opencode", "0")
    done = finished([sys.executable, str(PROGRAM), "--json", *size], Path.cwd(), os.environ)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    ratios = found["ratios"]
    assert set(ratios) == set(found["goals"])
    assert (ratios["unaccounted"], ratios["left"]) == (0.0, 0.0), found
    assert "prime {'scored': 4}, local {'scored': 2}" in found["detail"]["outcomes"]
    assert set(found["detail"]["requests of one rollout"]) == {"create", "statuses", "Start", "delete"}
