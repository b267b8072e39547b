"""A benchmark in a process of its own, forked as are the Pythons that it starts."""

import json
from pathlib import Path
from typing import Any

from tests.support.programs import own_variables
from tests.support.shims import finished_with_children

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def result_of(name: str, *options: str) -> dict[str, Any]:
    """What a benchmark prints as JSON."""
    done = finished_with_children([str(BENCHMARKS / name), "--json", *options], Path.cwd(), own_variables())
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
