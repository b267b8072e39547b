"""Arrow types for rows of Python values whose columns may be mixed, as those of a JSONL file may.

Invariant: a value is only ever written in another form that means the same task: a number among texts as the
text of it, a single command among lists as a list of one, a plain question among message lists as one message.
Anything else that Arrow cannot hold is refused with the column's name.
"""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from opencode_env.difficulty.errors import BadInputError
from opencode_env.difficulty.rated import one_line

Values = Mapping[str, object]


class ColumnTypes:
    """The types of columns, found from all rows before the first is written."""

    def __init__(self, name: str, exact: str) -> None:
        """`name` is the dataset's, for messages; in column `exact`, the answers', 7 and 7.0 are not the same."""
        self._name = name
        self._exact = exact
        self._kinds: dict[str, set[str]] = {}
        self._types: dict[str, pa.DataType] = {}

    def see(self, rows: Sequence[Values]) -> None:
        """Take more rows into account."""
        for row in rows:
            for column, value in row.items():
                kinds = self._kinds.setdefault(column, set())
                if value is not None:
                    kinds.add(_kind(value, column == self._exact))
        for column in self._kinds:
            found = self._array(column, [row.get(column) for row in rows], None).type
            known = self._types.get(column)
            self._types[column] = found if known is None else self._common(column, known, found)

    def schema(self) -> tuple[pa.Schema, list[str]]:
        """The schema of all rows seen, and notes about what is written in another form."""
        notes = [
            f'column "{column}" mixes {" and ".join(sorted(kinds))}: {_form(kinds)}'
            for column, kinds in self._kinds.items()
            if len(kinds) > 1
        ]
        return pa.schema(list(self._types.items())), notes

    def batch(self, rows: Sequence[Values], schema: pa.Schema) -> pa.RecordBatch:
        """Rows as Arrow, under the schema."""
        arrays = [self._array(field.name, [row.get(field.name) for row in rows], field.type) for field in schema]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _array(self, column: str, values: list[object], kind: pa.DataType | None) -> pa.Array:
        kinds = self._kinds[column]
        try:
            return pa.array([_unmixed(value, kinds) for value in values], type=kind)
        except (pa.ArrowException, OverflowError) as error:
            raise BadInputError(
                f'column "{column}" of "{self._name}" cannot be written to Parquet: {one_line(error)}'
            ) from None

    def _common(self, column: str, known: pa.DataType, found: pa.DataType) -> pa.DataType:
        if known == found:
            return known
        # A column that turns out to be mixed only now: all of it will be written in the common form.
        form = _form(self._kinds[column])
        if form == AS_TEXT:
            return pa.string()
        if form == AS_LIST and pa.types.is_string(known):
            return found
        try:
            schemas = [pa.schema([(column, kind)]) for kind in (known, found)]
            return pa.unify_schemas(schemas, promote_options="permissive").field(0).type
        except pa.ArrowException as error:
            raise BadInputError(
                f'column "{column}" of "{self._name}" holds values of different shapes: {one_line(error)}'
            ) from None


AS_TEXT = "written as text"
AS_LIST = "written as lists"
AS_IT_IS = "written as it is"
NUMBERS = {"numbers", "whole numbers", "decimal numbers"}


def _kind(value: object, exact: bool) -> str:
    if isinstance(value, bool):
        return "true and false"
    if isinstance(value, int | float):
        return f"{'whole' if isinstance(value, int) else 'decimal'} numbers" if exact else "numbers"
    if isinstance(value, str):
        return "text"
    if isinstance(value, list):
        return "messages" if value and isinstance(value[0], dict) else "lists"
    return type(value).__name__


def _form(kinds: set[str]) -> str:
    """How a column that holds values of `kinds` is written."""
    if "text" in kinds and len(kinds) > 1 and kinds <= {"text", "messages", "lists"}:
        return AS_LIST
    return AS_TEXT if len(kinds) > 1 and kinds <= {"text", *NUMBERS} else AS_IT_IS


def _unmixed(value: object, kinds: set[str]) -> object:
    """`value` in the form in which its column is written."""
    form = _form(kinds)
    if form == AS_TEXT and isinstance(value, int | float):
        return str(value)
    if form == AS_LIST and isinstance(value, str):
        return [{"role": "user", "content": value}] if "messages" in kinds else [value]
    return value
