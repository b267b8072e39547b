"""Easy, medium, hard: the three bands of a rated dataset, how `show` reports them, and `split` by them."""

from contextlib import ExitStack
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import BaseModel, Field

from opencode_runs.difficulty.outputs import check_output, drawing, replacing
from opencode_runs.difficulty.rated import RatedFile, RatedRow, finite
from opencode_runs.difficulty.thresholds import Band, Thresholds
from opencode_runs.tables import number
from opencode_runs.traces.errors import BadInputError
from opencode_runs.traces.progress import Progress

BAR_WIDTH = 50


class BandFigures(BaseModel):
    condition: str
    rows: int = 0
    first: list[str] = []


class ShowFigures(BaseModel):
    path: str
    column: str
    rows: int
    rated: int = 0
    mean: float | None = None
    edges: list[float]
    """Ends of the histogram's bins; the last bin has both its ends."""
    counts: list[int]
    bands: dict[Band, BandFigures]
    about: dict[str, object] = Field(default_factory=dict)
    """What `join` recorded about the runs."""


def show(rated: RatedFile, thresholds: Thresholds, *, bins: int, first: int) -> ShowFigures:
    """Work out the histogram and bands of a rated file; `first` rows of each band are named."""
    low, high = rated.reach()
    found = ShowFigures(
        path=str(rated.path),
        column=rated.column,
        rows=rated.rows,
        edges=[low + (high - low) * i / bins for i in range(bins + 1)],
        counts=[0] * bins,
        bands={band: BandFigures(condition=thresholds.describe(band)) for band in Band},
        about=rated.about,
    )
    total = 0.0
    for row in rated.read():
        band = found.bands[thresholds.band(row.reward)]
        band.rows += 1
        if len(band.first) < first:
            band.first.append(_describe(row))
        if row.reward is not None:
            found.rated += 1
            total += row.reward
            # The slack puts 0.3, which is not three times 0.1 in floats, where it belongs.
            found.counts[min(int((row.reward - low) / (high - low) * bins + 1e-9), bins - 1)] += 1
    found.mean = total / found.rated if found.rated else None
    return found


def show_text(figures: ShowFigures) -> str:
    most = max(figures.counts, default=0) or 1
    mean = number(figures.mean, ".3f")
    lines = [f"{figures.column}: {figures.rated:,} of {figures.rows:,} rows rated, mean {mean}", ""]
    for index, count in enumerate(figures.counts):
        bar = "█" * max(round(count / most * BAR_WIDTH), 1 if count else 0)
        closing = "]" if index == len(figures.counts) - 1 else ")"
        low, high = figures.edges[index], figures.edges[index + 1]
        lines.append(f"[{low:5.2f}, {high:5.2f}{closing}  {bar:<{BAR_WIDTH}} {count:,}")
    for band, content in figures.bands.items():
        lines += ["", f"{band} ({content.condition}): {content.rows:,} rows"]
        lines += [f"    {label}" for label in content.first]
        if content.first and content.rows > len(content.first):
            lines.append(f"    … {content.rows - len(content.first):,} more")
    return "\n".join(lines)


def write_png(figures: ShowFigures, thresholds: Thresholds, path: Path) -> None:
    """Draw the histogram of `figures` as a PNG, with the medium band shaded.

    Raises:
        BadInputError: matplotlib is not installed, or the file cannot be written.
    """
    with drawing(path) as axes:
        axes.axvspan(thresholds.low, thresholds.high, alpha=0.15, label="medium band")
        axes.stairs(figures.counts, figures.edges, fill=True, edgecolor="white", label="tasks")
        axes.set_xlabel(figures.column)
        axes.set_ylabel("tasks")
        axes.set_title(f"{figures.rated:,} of {figures.rows:,} rows rated")
        axes.legend()


class SplitFile(BaseModel):
    path: Path
    condition: str
    rows: int = 0


class SplitFigures(BaseModel):
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
            progress.update(batch.num_rows)
    return SplitFigures(column=rated.column, files=files)


def _describe(row: RatedRow) -> str:
    if row.reward is None:
        return row.label
    tries = f"  ({row.passes} of {row.attempts} passed)" if row.attempts else ""
    return f"{row.reward:.3f}  {row.label}{tries}"
