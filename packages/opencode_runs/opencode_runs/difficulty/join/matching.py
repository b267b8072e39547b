"""Matching a dataset's rows with the tasks of a rating, so that nothing is dropped unseen.

A row matches by its key, which `OpenCodeTaskset`'s own mapping computes under the column options of the run's saved
config; if no task has it, by its id, where the id belongs to one task only. Several rows may match the same task
(copies of a question under a taskset that does not tell them apart): each gets its figures.
"""

from collections import Counter
from typing import Literal, NamedTuple

from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.columns import CONFIGURABLE
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import Row
from opencode_env.taskset.values import identifier
from pydantic import BaseModel, ValidationError

from opencode_runs.difficulty.rate import SourceRating, Tally
from opencode_runs.tables import short, task_label
from opencode_runs.traces.errors import BadInputError
from opencode_runs.traces.runs import RunSettings, TraceFile

OPTIONS = (*CONFIGURABLE, "dataset_split", "dataset_subset")
"""The taskset's options that decide what a row's key is, and which rows of a folder are meant."""
OUR_TASKSETS = (
    "opencode_env",
    "opencode_rlm",
    "opencode_math",
    "opencode_science",
    "opencode_cp",
    "opencode_deepdive",
    "opencode_swe",
)
MatchBy = Literal["auto", "key", "id"]


class RowIdentity(NamedTuple):
    key: str | None
    id: str | None


class RowKeys:
    """Finds the identities of a dataset's rows, in order; one object for one pass."""

    def __init__(self, config: OpenCodeTasksetConfig, id_key: str | None, *, by_key: bool = True) -> None:
        self._mapper = RowMapper(config) if by_key else None
        self._id = id_key or config.id_key or "id"
        self.refused = 0
        """Rows that are not tasks of `OpenCodeTaskset`: they can match by id only."""
        self.first_refusal: str | None = None

    def find(self, row: Row) -> RowIdentity:
        try:
            row_id = identifier(row, self._id)
        except DatasetError:
            row_id = None
        try:
            return RowIdentity(self._mapper.task_data(row).row_key if self._mapper else None, row_id)
        except DatasetError as error:
            self.refused += 1
            self.first_refusal = self.first_refusal or str(error)
            return RowIdentity(None, row_id)


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
        self._by, self._names = by, names
        self._tallies = {key: tally for tasks in self._rated for key, tally in tasks.items()}
        carried = Counter(tally.task_id for tally in self._tallies.values())
        self._by_id = {tally.task_id: key for key, tally in self._tallies.items() if carried[tally.task_id] == 1}
        self._used: Counter[str] = Counter()
        self.tasks = len(self._tallies)
        """Different tasks of the sources."""
        self.by_key = self.by_id = 0
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
        left = Leftovers()
        for key, tally in self._tallies.items():
            if key not in self._used:
                left.add(task_label(key, tally.task_id or tally.task_name or tally.task_prompt), self._names)
        return left

    def _find(self, identity: RowIdentity) -> str | None:
        if self._by != "id" and identity.key in self._tallies:
            self.by_key += 1
            return identity.key
        if self._by != "key" and identity.id is not None and (key := self._by_id.get(identity.id)) is not None:
            self.by_id += 1
            return key
        return None


def column_options(files: list[TraceFile], given: dict[str, str]) -> OpenCodeTasksetConfig:
    """The taskset options that say which column means what: those of the runs' saved configs, then `given`.

    Raises:
        BadInputError: the runs read their datasets by different columns, or an option is unknown.
    """
    unknown = sorted(set(given) - set(OPTIONS))
    if unknown:
        raise BadInputError(f"--taskset {unknown[0]} is unknown; there are: {', '.join(OPTIONS)}")
    known = [(file.path.parent.name, found) for file in files if (found := _saved(file.settings)) is not None]
    first = known[0][1] if known else {}
    if any(options != first for _, options in known) and not given:
        named = ", ".join(f'"{name}"' for name, _ in known)
        raise BadInputError(
            f"the runs {named} read their datasets by different columns: join them one by one, "
            "or say which column means what with --taskset"
        )
    try:
        return OpenCodeTasksetConfig.model_validate(first | given)
    except ValidationError as error:
        raise BadInputError(f"--taskset: {error.errors()[0]['msg']}") from None


def _saved(settings: RunSettings) -> dict[str, str] | None:
    """The options of a run on our taskset, None for another taskset or an unknown config."""
    name = str(settings.taskset.get("id", "")).rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_")
    if name not in OUR_TASKSETS:
        return None
    return {name: value for name in OPTIONS if isinstance(value := settings.taskset.get(name), str)}
