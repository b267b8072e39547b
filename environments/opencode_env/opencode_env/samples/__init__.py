"""The shipped sample tasks: ten small real exercises in `tasks.jsonl`, one row each.

Ids are stable (results of runs are joined by them), and no row's checks pass before the task is worked on.
"""

import json
from pathlib import Path
from typing import NamedTuple

SAMPLES_PATH = Path(__file__).with_name("tasks.jsonl")
"""The rows, in the schema of `OpenCodeTaskset`."""


class Sample(NamedTuple):
    """Tells one sample task from the others."""

    id: str
    question: str


def load_samples() -> tuple[Sample, ...]:
    lines = SAMPLES_PATH.read_text(encoding="utf-8").rstrip("\n").split("\n")
    return tuple(Sample(row["id"], row["question"]) for row in map(json.loads, lines))
