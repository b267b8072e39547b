"""Keeps the rows whose difficulty lies in a band: vectorised, before anything of a row is built.

Invariant: `minimum <= value <= maximum`, both ends included, on numbers only. A value that is null or NaN is
unrated: kept or dropped as a whole and counted. Text that looks like a number is refused, never converted.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from opencode_env.taskset.arrow_buffers import floats_with_nan
from opencode_env.taskset.errors import DatasetError

logger = logging.getLogger("verifiers.v1.opencode_env.taskset")

Mask = npt.NDArray[np.bool_]

_BINS = 10
_BAR_WIDTH = 40


@dataclass(frozen=True)
class Band:
    """Which values of which column are kept."""

    key: str
    minimum: float
    maximum: float
    keep_unrated: bool

    def mask_of_all(self, ratings: Iterable[Any], origin: str, report: "BandReport") -> Mask:
        """One boolean per value of Arrow arrays that follow each other: whether its row is kept.

        Raises:
            DatasetError: The column holds something other than numbers.
        """
        masks = []
        first = 1
        for array in ratings:
            masks.append(self.mask(array, origin, report, first=first))
            first += len(array)
        return np.concatenate(masks) if masks else np.empty(0, dtype=np.bool_)

    def mask(self, ratings: Any, origin: str, report: "BandReport", *, first: int) -> Mask:
        """One boolean per value of the Arrow array `ratings`, whose first has row number `first`: is it kept?

        Raises:
            DatasetError: The column holds something other than numbers.
        """
        values = self._numbers(ratings, origin, first)
        unrated = np.isnan(values)
        # Comparisons with NaN are false, so unrated rows are never inside.
        kept: Mask = (values >= self.minimum) & (values <= self.maximum)
        if self.keep_unrated:
            kept |= unrated
        report.add(values, unrated, kept)
        return kept

    def _numbers(self, ratings: Any, origin: str, first: int) -> npt.NDArray[np.float64]:
        """The ratings as floats, null as NaN."""
        kind = ratings.type
        if not (
            pa.types.is_integer(kind)
            or pa.types.is_floating(kind)
            or pa.types.is_decimal(kind)
            or pa.types.is_null(kind)
        ):
            row, value = _first_value(ratings, first)
            raise DatasetError(
                f'{origin} row {row}: column "{self.key}" holds {value!r} ({kind}); difficulty_key needs a column '
                f"of numbers"
            )
        return floats_with_nan(pc.cast(ratings, pa.float64(), safe=False))


@dataclass
class BandReport:
    """Counts of one pass: what was kept, and how all values are distributed over tenths from 0 to 1."""

    before: int = 0
    after: int = 0
    unrated: int = 0
    below: int = 0
    above: int = 0
    bins: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_BINS, dtype=np.int64))

    def add(self, values: npt.NDArray[np.float64], unrated: Mask, kept: Mask) -> None:
        """Count one batch of values."""
        self.before += len(values)
        self.after += int(np.count_nonzero(kept))
        self.unrated += int(np.count_nonzero(unrated))
        self.below += int(np.count_nonzero(values < 0))
        self.above += int(np.count_nonzero(values > 1))
        self.bins += np.histogram(values, bins=_BINS, range=(0.0, 1.0))[0]

    def finish(self, band: Band, name: str) -> None:
        """Log what was kept.

        Raises:
            DatasetError: Nothing was.
        """
        handled = "kept" if band.keep_unrated else "dropped"
        line = (
            f'dataset "{name}": {self.after} of {self.before} rows have "{band.key}" in '
            f"[{band.minimum:g}, {band.maximum:g}] ({self.unrated} unrated, {handled})"
        )
        if self.after == 0:
            raise DatasetError(f"{line}; widen min_avg_reward and max_avg_reward. Distribution:\n{self.histogram()}")
        logger.info("%s\n%s", line, self.histogram())

    def histogram(self) -> str:
        """The distribution as lines of text, one per tenth, with what lies outside and the unrated."""
        rows = [("< 0", self.below)] if self.below else []
        for index, count in enumerate(self.bins):
            end = "]" if index == _BINS - 1 else ")"
            rows.append((f"[{index / _BINS:.1f}, {(index + 1) / _BINS:.1f}{end}", int(count)))
        if self.above:
            rows.append(("> 1", self.above))
        if self.unrated:
            rows.append(("unrated", self.unrated))
        highest = max(count for _, count in rows) or 1
        return "\n".join(f"  {label:<10} {count:>9} {'#' * -(-count * _BAR_WIDTH // highest)}" for label, count in rows)


def _first_value(array: Any, first: int) -> tuple[int, object]:
    """Row number and value of the first entry that is not null."""
    for number, value in enumerate(array, start=first):
        if value.is_valid:
            return number, value.as_py()
    return first, None
