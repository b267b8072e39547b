"""Reads one numeric column out of JSON lines with Arrow's parser, without building the rows.

Invariant: the result has one value per line or there is no result. Arrow does not report which line a value
came from, so anything unusual (another type, more or fewer objects than lines) is left to the slow way.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json


def numbers_of_lines(lines: list[bytes], key: str) -> Any | None:
    """The numbers that the lines hold under `key` (null where they do not), or `None` if unsure.

    A key with dots is taken literally first, as `Row.get` does; if any line has it so, there is no result
    for the nested reading.
    """
    data = b"\n".join(lines)
    parts = key.split(".")
    if len(parts) > 1 and b'"' + key.encode() + b'"' in data:
        return None
    kind: Any = pa.float64()
    for part in reversed(parts):
        kind = pa.struct([(part, kind)])
    options = pyarrow.json.ParseOptions(explicit_schema=pa.schema(list(kind)), unexpected_field_behavior="ignore")
    # One block: a row larger than a block is an error of the parser.
    read_options = pyarrow.json.ReadOptions(block_size=len(data) + 1, use_threads=False)
    try:
        table = pyarrow.json.read_json(io.BytesIO(data), read_options, options)
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(lines):
        return None
    column = table.column(parts[0])
    for part in parts[1:]:
        column = pc.struct_field(column, part)
    return column.combine_chunks()
