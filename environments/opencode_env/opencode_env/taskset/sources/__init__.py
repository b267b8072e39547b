"""Reading rows from wherever a dataset is."""

from opencode_env.taskset.sources.reading import read_rows

__all__ = ["read_rows"]
