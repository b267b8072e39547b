"""The sample tasks of recursion: needles in files that are far larger than a model's window."""

from collections.abc import Iterator
from pathlib import Path

from opencode_env.taskset import OpenCodeTask, OpenCodeTaskset

SAMPLES_PATH = Path(__file__).parent / "samples" / "needles.jsonl"
"""The rows, in the schema of `OpenCodeTaskset`."""


class NeedleTaskset(OpenCodeTaskset):
    """`OpenCodeTaskset` whose own sample set is the needles; every other dataset works as there."""

    def load(self) -> Iterator[OpenCodeTask]:
        """Yield the tasks of the configured dataset, of the needles without one."""
        if self.config.dataset is None:
            self.config = self.config.model_copy(update={"dataset": str(SAMPLES_PATH)})
        yield from super().load()
