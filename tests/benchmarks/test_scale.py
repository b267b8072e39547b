"""The benchmark of many rollouts at once, with a few: every one is accounted for, and nothing is left."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.opencode, pytest.mark.slow, pytest.mark.usefixtures("sandboxes")]

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "scale.py"


async def test_every_rollout_is_scored_or_failed_and_nothing_is_left_of_it() -> None:
    size = ("--rollouts", "12", "--turns", "4", "--seconds", "1.2", "--spread", "0.4")
    argv = (sys.executable, str(PROGRAM), "--json", *size)
    running = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    out, _ = await running.communicate()
    assert running.returncode == 0
    found = json.loads(out.splitlines()[-1])
    assert (found["ratios"]["unaccounted"], found["ratios"]["left"]) == (0.0, 0.0), found
    assert "{'killed': 2, 'scored': 10}" in found["detail"]["faulty, ours"]
    assert "{'scored': 12}" in found["detail"]["steady, ours"]
