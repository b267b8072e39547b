"""Which task a row of a dataset became: the seam to the taskset, which alone knows how to tell.

The key is computed by `OpenCodeTaskset`'s own mapping, under the column options of the run's saved config, so that
nothing has to be said twice. Runs of another taskset are matched by the id that its tasks carry.
"""

from typing import NamedTuple

from pydantic import ValidationError

from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.runs import RunSettings, TraceFile
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.columns import CONFIGURABLE
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import Row
from opencode_env.taskset.values import identifier

OPTIONS = (*CONFIGURABLE, "dataset_split", "dataset_subset")
"""The taskset's options that decide what a row's key is, and which rows of a folder are meant."""
OUR_TASKSETS = ("opencode_env", "opencode_rlm")


class RowIdentity(NamedTuple):
    """What a row is called; either may be unknown."""

    key: str | None
    id: str | None


class RowKeys:
    """Finds the identities of a dataset's rows, in order; one object for one pass."""

    def __init__(self, config: OpenCodeTasksetConfig, id_key: str | None, *, by_key: bool = True) -> None:
        self._mapper = RowMapper(config) if by_key else None
        self._id = id_key or config.id_key or "id"
        self.refused = 0
        """Rows that are no task of `OpenCodeTaskset`: they can match by id only."""
        self.first_refusal: str | None = None

    def find(self, row: Row) -> RowIdentity:
        """The identity of `row`."""
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
