"""Easy, medium, hard: the three bands of a rated dataset, and how `show` reports them."""

from dataclasses import dataclass
from enum import StrEnum

from pydantic import BaseModel, Field

from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.rated import RatedFile, RatedRow

BAR_WIDTH = 50


class Band(StrEnum):
    """Where a row's difficulty lies; the medium band has both its ends, as the taskset's filter does."""

    HARD = "hard"
    """Below the medium band."""
    MEDIUM = "medium"
    EASY = "easy"
    """Above the medium band."""
    UNRATED = "unrated"
    """No difficulty is known (null or NaN)."""


@dataclass(frozen=True)
class Thresholds:
    """The ends of the medium band, both part of it."""

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        if not self.low <= self.high:
            raise BadInputError(f"--hard-below {self.low:g} is above --easy-above {self.high:g}: swap them")

    def band(self, reward: float | None) -> Band:
        """The band of a difficulty."""
        if reward is None:
            return Band.UNRATED
        if reward < self.low:
            return Band.HARD
        return Band.EASY if reward > self.high else Band.MEDIUM

    def describe(self, band: Band) -> str:
        """The condition of a band."""
        conditions = (f"< {self.low:g}", f"{self.low:g} to {self.high:g}", f"> {self.high:g}", "no value")
        return dict(zip(Band, conditions, strict=True))[band]


class BandFigures(BaseModel):
    """One band, with its first rows."""

    condition: str
    rows: int = 0
    first: list[str] = []


class ShowFigures(BaseModel):
    """The answer of `show`."""

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
    """The histogram and bands for a terminal."""
    most = max(figures.counts, default=0) or 1
    mean = "-" if figures.mean is None else f"{figures.mean:.3f}"
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


def _describe(row: RatedRow) -> str:
    if row.reward is None:
        return row.label
    tries = f"  ({row.passes} of {row.attempts} passed)" if row.attempts else ""
    return f"{row.reward:.3f}  {row.label}{tries}"
