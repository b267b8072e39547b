"""Matching a dataset's rows with the tasks of a rating, so that nothing is dropped unseen.

A row matches by its key; if none has it, by its id, where the id belongs to one task only. Several rows may match
the same task (copies of a question under a taskset that does not tell them apart): each gets its figures.
"""

from collections import Counter
from typing import Literal

from pydantic import BaseModel

from opencode_env.difficulty.keys import RowIdentity
from opencode_env.difficulty.rate import SourceRating
from opencode_env.difficulty.tally import Tally
from opencode_env.difficulty.text import short, task_label

MatchBy = Literal["auto", "key", "id"]


class Leftovers(BaseModel):
    """Things that found no partner: how many, and the first of them."""

    count: int = 0
    first: list[str] = []

    def add(self, name: str, limit: int) -> None:
        """Count one more, and remember its name if there is room."""
        self.count += 1
        if len(self.first) < limit:
            self.first.append(name)

    def warning(self, what: str) -> list[str]:
        """A line about them, if there are any."""
        named = f": {', '.join(self.first)}" + (", …" if self.count > len(self.first) else "")
        return [f"{self.count:,} {what}{named if self.first else ''}"] if self.count else []


class Matcher:
    """The tasks of the chosen sources, and which of them found a row."""

    def __init__(self, sources: list[SourceRating], by: MatchBy, names: int) -> None:
        self._rated = [source.tasks for source in sources]
        self._by = by
        self._names = names
        self._labels = {key: tally for tasks in self._rated for key, tally in tasks.items()}
        named = Counter(tally.task_id for tally in self._labels.values())
        self._by_id = {tally.task_id: key for key, tally in self._labels.items() if named[tally.task_id] == 1}
        self._used: Counter[str] = Counter()
        self.tasks = len(self._labels)
        """Different tasks of the sources."""
        self.by_key = 0
        self.by_id = 0
        self.rows_left = Leftovers()

    def match(self, identity: RowIdentity, number: int) -> list[Tally | None]:
        """The tallies of a row, one per source; `number` is its position, from 1."""
        key = self._find(identity)
        if key is None:
            self.rows_left.add(short(identity.id or identity.key or f"row {number}"), self._names)
            return [None] * len(self._rated)
        self._used[key] += 1
        return [tasks.get(key) for tasks in self._rated]

    @property
    def shared(self) -> int:
        """Tasks that more than one row matched."""
        return sum(count > 1 for count in self._used.values())

    def tasks_left(self) -> Leftovers:
        """The tasks that no row matched."""
        left = Leftovers()
        for key, tally in self._labels.items():
            if key not in self._used:
                left.add(task_label(key, tally.task_id or tally.task_name or tally.task_prompt), self._names)
        return left

    def _find(self, identity: RowIdentity) -> str | None:
        if self._by != "id" and identity.key in self._labels:
            self.by_key += 1
            return identity.key
        if self._by != "key" and identity.id is not None and (key := self._by_id.get(identity.id)) is not None:
            self.by_id += 1
            return key
        return None
