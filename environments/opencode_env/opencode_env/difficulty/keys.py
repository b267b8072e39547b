"""Which task a row of a dataset became: the seam to the taskset, which alone knows how to tell.

The key is computed by `OpenCodeTaskset`'s own mapping, under the column options of the run's saved config, so that
nothing has to be said twice. Runs of another taskset are matched by the id that its tasks carry.
"""

from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.runs import TasksetSettings, run_settings
from opencode_env.taskset import DatasetError, OpenCodeTasksetConfig
from opencode_env.taskset.mapping import RowMapper
from opencode_env.taskset.row import Row
from opencode_env.taskset.values import identifier

IDENTITY_OPTIONS = (
    "question_key",
    "answer_key",
    "id_key",
    "image_key",
    "setup_key",
    "verify_key",
    "system_prompt_key",
)
"""The taskset's options that decide what a row's key is."""
PLACE_OPTIONS = ("dataset_split", "dataset_subset")
"""The taskset's options that say which rows of a folder are meant."""
COLUMN_OPTIONS = (*IDENTITY_OPTIONS, *PLACE_OPTIONS)
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
        if self._mapper is None:
            return RowIdentity(None, row_id)
        try:
            return RowIdentity(self._mapper.task_data(row).row_key, row_id)
        except DatasetError as error:
            self.refused += 1
            self.first_refusal = self.first_refusal or str(error)
            return RowIdentity(None, row_id)


def column_options(trace_files: list[Path], given: dict[str, str]) -> OpenCodeTasksetConfig:
    """The taskset options that say which column means what: those of the runs' saved configs, then `given`.

    Raises:
        BadInputError: the runs read their datasets by different columns, or an option is unknown.
    """
    unknown = sorted(set(given) - set(COLUMN_OPTIONS))
    if unknown:
        raise BadInputError(f"--taskset {unknown[0]} is unknown; there are: {', '.join(COLUMN_OPTIONS)}")
    found = {file: _saved(run_settings(file).env.taskset) for file in trace_files}
    known = {file: options for file, options in found.items() if options is not None}
    distinct = {tuple(sorted(options.items())) for options in known.values()}
    if len(distinct) > 1 and not given:
        named = ", ".join(f'"{file.parent.name}"' for file in known)
        raise BadInputError(
            f"the runs {named} read their datasets by different columns: join them one by one, "
            "or say which column means what with --taskset"
        )
    options = dict(next(iter(distinct), ()))
    try:
        return OpenCodeTasksetConfig.model_validate(options | given)
    except ValidationError as error:
        raise BadInputError(f"--taskset: {error.errors()[0]['msg']}") from None


def _saved(settings: TasksetSettings) -> dict[str, str] | None:
    """The options of a run on our taskset, None for another taskset or an unknown config."""
    if settings.id.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_") not in OUR_TASKSETS:
        return None
    extra = settings.model_extra or {}
    return {name: extra[name] for name in COLUMN_OPTIONS if isinstance(extra.get(name), str)}
