"""Splitting a rated dataset into one Parquet file per band."""

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from opencode_env.difficulty.bands import Band, Thresholds
from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.outputs import check_output, replacing
from opencode_env.difficulty.progress import Progress
from opencode_env.difficulty.rated import RatedFile, finite


class SplitFile(BaseModel):
    """One file written."""

    path: Path
    condition: str
    rows: int = 0


class SplitFigures(BaseModel):
    """The answer of `split`."""

    column: str
    files: dict[Band, SplitFile]


def split(rated: RatedFile, thresholds: Thresholds, folder: Path, *, force: bool) -> SplitFigures:
    """Write `hard`, `medium`, `easy` and `unrated.parquet` into `folder`, all four or none.

    A file may have no rows: a missing one could be taken for an old one. Rows keep their order and columns.

    Raises:
        BadInputError: an output exists and `force` is not set, or the input is damaged.
    """
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise BadInputError(f'output folder "{folder}" cannot be made: {error.strerror}') from None
    files = {band: SplitFile(path=folder / f"{band}.parquet", condition=thresholds.describe(band)) for band in Band}
    for file in files.values():
        check_output(file.path, force=force)
        if file.path.exists() and file.path.samefile(rated.path):
            raise BadInputError(f'output "{file.path}" is the input: write to another folder')
    with replacing(file.path for file in files.values()) as temporaries, ExitStack() as stack:
        writers = [stack.enter_context(pq.ParquetWriter(temporary, rated.schema)) for temporary in temporaries]
        progress = stack.enter_context(Progress("splitting", rated.rows, "rows"))
        for batch in rated.batches():
            bands = [thresholds.band(finite(reward)) for reward in batch.column(rated.column).to_pylist()]
            for (band, file), writer in zip(files.items(), writers, strict=True):
                part = batch.filter(pa.array([found is band for found in bands], pa.bool_()))
                writer.write_batch(part)
                file.rows += part.num_rows
            progress.add(batch.num_rows)
    return SplitFigures(column=rated.column, files=files)
