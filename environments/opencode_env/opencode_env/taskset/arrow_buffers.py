"""Numbers and booleans between Arrow and NumPy, by their buffers.

Arrow's own conversions import pandas where it is installed, which takes longer than filtering a million rows.
Layouts: Arrow columnar format 1.5, "Fixed-size primitive layout" and "Validity bitmaps".
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def floats_with_nan(array: Any) -> npt.NDArray[np.float64]:
    """The values of an Arrow array of 64-bit floats, null as NaN; shape: (length,)."""
    chunks = array.chunks if isinstance(array, pa.ChunkedArray) else [array]
    return np.concatenate([_chunk_floats(chunk) for chunk in chunks] or [np.empty(0)])


def _chunk_floats(array: Any) -> npt.NDArray[np.float64]:
    validity, data = array.buffers()
    window = slice(array.offset, array.offset + len(array))
    if data is None or not len(array):
        return np.full(len(array), np.nan)
    values = np.frombuffer(data, dtype=np.float64)[window]
    if not array.null_count:
        return values
    valid = np.unpackbits(np.frombuffer(validity, dtype=np.uint8), bitorder="little")[window]
    return np.where(valid, values, np.nan)


def boolean_array(mask: npt.NDArray[np.bool_]) -> Any:
    """An Arrow boolean array of `mask`; shape: (length,)."""
    packed = pa.py_buffer(np.packbits(mask, bitorder="little").tobytes())
    return pa.BooleanArray.from_buffers(pa.bool_(), len(mask), [None, packed])
