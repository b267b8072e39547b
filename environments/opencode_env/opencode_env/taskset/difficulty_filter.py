"""Keeps the rows whose difficulty lies in a range: vectorised, before anything of a row is built.

A row is kept where `minimum <= value <= maximum`, on numbers only. A value that is null or NaN is
unrated: kept or dropped as a whole and counted. Text that looks like a number is refused, never converted.
"""

import logging
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from opencode_env.errors import DatasetError
from opencode_env.taskset.row import Row

logger = logging.getLogger("verifiers.v1.opencode_env.taskset")

Mask = Any
"""An Arrow boolean array: whether each row is kept."""
_BELOW, _ABOVE, _BINS = -1, 10, 10


def floats(values: Iterable[float]) -> Any:
    """An Arrow array of floats, by its buffer. Arrow's own conversion of Python numbers imports pandas where it is
    installed, which takes longer than filtering a million rows; so every constant below is made here, too."""
    packed = array("d", values)
    return pa.Array.from_buffers(pa.float64(), len(packed), [None, pa.py_buffer(packed)])


_LEAST, _MOST, _PARTS, _LAST, _ONE, _NAN = floats([_BELOW, _ABOVE, _BINS, _BINS - 1, 1.0, math.nan])


@dataclass(frozen=True)
class RewardRange:
    """Tells which values of which column are kept."""

    key: str
    minimum: float
    maximum: float
    keep_unrated: bool

    def mask(self, ratings: Iterable[Any], origin: str, report: "FilterReport", *, first: int = 1) -> Mask:
        """One boolean per value of Arrow arrays that follow each other, the first of which has row number `first`; a
        `DatasetError` where something else than numbers is in the column."""
        masks = []
        low, high = floats([self.minimum, self.maximum])
        for column in ratings:
            values = self._numbers(column, origin, first)
            unrated = pc.is_nan(values)
            # Comparisons with NaN are false, so unrated rows are never inside.
            kept = pc.and_(pc.greater_equal(values, low), pc.less_equal(values, high))
            masks.append(pc.or_(kept, unrated) if self.keep_unrated else kept)
            report.add(values, unrated, masks[-1])
            first += len(column)
        return pa.chunked_array(masks, type=pa.bool_()).combine_chunks()

    def _numbers(self, ratings: Any, origin: str, first: int) -> Any:
        kind, values = ratings.type, pa.concat_arrays(getattr(ratings, "chunks", None) or [ratings])
        if not any(test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)):
            for row, value in enumerate(values, start=first):
                if value.is_valid:
                    held = f"{value.as_py()!r} ({kind})"
                    Row(origin, row, {}).refuse(self.key, f"holds {held}; difficulty_key needs a column of numbers")
            values = pa.nulls(len(values), pa.float64())
        return pc.fill_null(pc.cast(values, pa.float64(), safe=False), _NAN)


@dataclass
class FilterReport:
    """Counts of one pass: what was kept, and how all values are distributed over tenths from 0 to 1."""

    before: int = 0
    after: int = 0
    unrated: int = 0
    tenths: Counter[int] = field(default_factory=Counter)

    def add(self, values: Any, unrated: Mask, kept: Mask) -> None:
        self.before += len(values)
        self.after += kept.true_count
        self.unrated += unrated.true_count
        rated = values.filter(pc.invert(unrated))
        tenths = pc.max_element_wise(pc.min_element_wise(pc.floor(pc.multiply(rated, _PARTS)), _MOST), _LEAST)
        tenths = pc.if_else(pc.equal(rated, _ONE), _LAST, tenths)
        for found in pc.value_counts(tenths).to_pylist():
            self.tenths[int(found["values"])] += found["counts"]

    def finish(self, wanted: RewardRange, name: str) -> None:
        """Log what was kept; a `DatasetError` where nothing was."""
        handled = "kept" if wanted.keep_unrated else "dropped"
        line = (
            f'dataset "{name}": {self.after} of {self.before} rows have "{wanted.key}" in '
            f"[{wanted.minimum:g}, {wanted.maximum:g}] ({self.unrated} unrated, {handled})"
        )
        if self.after == 0:
            raise DatasetError(f"{line}; widen min_avg_reward and max_avg_reward. Distribution:\n{self.histogram()}")
        logger.info("%s\n%s", line, self.histogram())

    def histogram(self) -> str:
        """The distribution as lines of text, one per tenth, with what lies outside and the unrated."""
        rows = [(f"[{t / _BINS:.1f}, {(t + 1) / _BINS:.1f}{')' if t < 9 else ']'}", self.tenths[t]) for t in range(10)]
        outside = [("< 0", self.tenths[_BELOW])], [("> 1", self.tenths[_ABOVE]), ("unrated", self.unrated)]
        rows = [row for row in outside[0] if row[1]] + rows + [row for row in outside[1] if row[1]]
        highest = max(count for _, count in rows) or 1
        return "\n".join(f"  {label:<10} {count:>9} {'#' * -(-count * 40 // highest)}" for label, count in rows)
