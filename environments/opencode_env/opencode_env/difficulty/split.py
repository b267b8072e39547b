"""Splitting a rated dataset into one Parquet file per band."""

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel

from opencode_env.difficulty.atomic import check_output, replacing
from opencode_env.difficulty.bands import Band, Thresholds
from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.progress import Progress
from opencode_env.difficulty.rated import RatedFile, finite


class SplitFile(BaseModel):
    """One file written."""

    path: Path
    condition: str
    rows: int


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
    paths = {band: folder / f"{band}.parquet" for band in Band}
    for path in paths.values():
        check_output(path, force=force)
        if path.exists() and path.samefile(rated.path):
            raise BadInputError(f'output "{path}" is the input: write to another folder')
    counts = dict.fromkeys(Band, 0)
    with replacing(paths.values()) as temporaries, ExitStack() as stack:
        writers = {
            band: stack.enter_context(pq.ParquetWriter(temporary, rated.schema))
            for band, temporary in zip(Band, temporaries, strict=True)
        }
        with Progress("splitting", rated.rows, "rows") as progress:
            for batch in rated.batches():
                for band, part in _parts(batch, rated.column, thresholds).items():
                    writers[band].write_batch(part)
                    counts[band] += part.num_rows
                progress.add(batch.num_rows)
    files = {
        band: SplitFile(path=path, condition=thresholds.describe(band), rows=counts[band])
        for band, path in paths.items()
    }
    return SplitFigures(column=rated.column, files=files)


def _parts(batch: pa.RecordBatch, column: str, thresholds: Thresholds) -> dict[Band, pa.RecordBatch]:
    """The batch's rows by band, bands without a row left out."""
    rewards = batch.column(column).to_pylist()
    rows: dict[Band, list[int]] = {}
    for index, reward in enumerate(rewards):
        rows.setdefault(thresholds.band(finite(reward)), []).append(index)
    return {band: batch.take(pa.array(indices)) for band, indices in rows.items()}
