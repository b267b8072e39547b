"""The benchmark of hostile neighbours, with one cheap attack and one neighbour: it attacks, and says what it saw."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("light_opencode")

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "neighbours.py"


def test_an_attack_is_held_back_with_the_protections_on_and_not_without() -> None:
    options = ["--rows", "connections", "--rollouts", "6", "--bare-rollouts", "6", "--json"]
    done = subprocess.run([sys.executable, str(PROGRAM), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["name"] == "neighbours"
    assert set(result["ratios"]) == {"connections", "errors"} == set(result["goals"])
    protected, bare = (result["detail"][f"connections{which}"] for which in ("", ", without protections"))
    assert result["ratios"]["errors"] == 0, protected
    assert protected["held_to_limit"] < 1 <= bare["held_to_limit"], result["detail"]
