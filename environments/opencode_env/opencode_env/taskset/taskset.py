"""The taskset: a dataset's rows as tasks, one at a time.

Invariant: iterating reads no further than it is asked to; a row becomes a task only when it is its turn.
"""

from collections.abc import Iterator

import verifiers.v1 as vf

from opencode_env.taskset.config import OpenCodeTasksetConfig
from opencode_env.taskset.errors import show_message_alone
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.task import OpenCodeTask


# verifiers bounds the task parameter by `Task` without arguments, whose invariant config excludes every subclass.
class OpenCodeTaskset(vf.Taskset[OpenCodeTask, OpenCodeTasksetConfig]):  # type: ignore[type-var]
    """Tasks from a file, a folder, a saved dataset or the Hub; see `OpenCodeTasksetConfig`."""

    def load(self) -> Iterator[OpenCodeTask]:
        """Yield the tasks in the dataset's order.

        Raises:
            DatasetError: the dataset cannot be found or read, a configured column does not exist, no row is
                kept, or a row is bad.
        """
        # Reading needs pyarrow and perhaps `datasets`, which env-server workers, that only get task data,
        # should not have to import.
        from opencode_env.taskset.sources import read_rows

        show_message_alone()
        mapper = RowMapper(self.config)
        for row in read_rows(self.config):
            yield OpenCodeTask(mapper.task_data(row), self.config.task)
