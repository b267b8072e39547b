"""The columns that `join` adds to a dataset, and what the file says about where they come from."""

import json
from collections.abc import Callable, Sequence

import pyarrow as pa

from opencode_env.difficulty.rated import METADATA_KEY, REWARD_COLUMN
from opencode_env.difficulty.tally import Tally

Value = float | int | None

FIGURES: dict[str, tuple[pa.DataType, Callable[[Tally], Value]]] = {
    REWARD_COLUMN: (pa.float64(), lambda tally: tally.avg_reward),
    "reward_stderr": (pa.float64(), lambda tally: tally.reward_stderr),
    "attempts": (pa.int64(), lambda tally: tally.attempts),
    "passes": (pa.int64(), lambda tally: tally.passes),
    "pass_rate": (pa.float64(), lambda tally: tally.pass_rate),
    "mean_turns": (pa.float64(), lambda tally: tally.mean_turns),
    "mean_tokens": (pa.float64(), lambda tally: tally.mean_tokens),
    "timed_out": (pa.int64(), lambda tally: tally.timed_out),
    "errors": (pa.int64(), lambda tally: tally.errors),
    "unscored": (pa.int64(), lambda tally: tally.unscored),
}
"""Column name, type, and how a task's tally fills it; a row without a tally is null in all of them."""


def column_names(prefix: str, ks: Sequence[int]) -> list[str]:
    """The names of all columns of one source."""
    return [prefix + name for name in (*FIGURES, *(f"pass_at_{k}" for k in ks))]


def column_arrays(tallies: Sequence[Tally | None], ks: Sequence[int]) -> list[pa.Array]:
    """The columns of one source for some rows, in the order of `column_names`."""
    arrays = [
        pa.array([None if tally is None else read(tally) for tally in tallies], type=kind)
        for kind, read in FIGURES.values()
    ]
    arrays += [
        pa.array([None if tally is None else tally.pass_at(k) for tally in tallies], type=pa.float64()) for k in ks
    ]
    return arrays


def extend_schema(schema: pa.Schema, prefixes: Sequence[str], ks: Sequence[int], about: str) -> pa.Schema:
    """`schema` with the columns of every prefix at its end (replacing any of the same name) and `about` as metadata."""
    kinds = [kind for kind, _ in FIGURES.values()] + [pa.float64()] * len(ks)
    added = {name: kind for prefix in prefixes for name, kind in zip(column_names(prefix, ks), kinds, strict=True)}
    fields = [field for field in schema if field.name not in added]
    fields += [pa.field(name, kind) for name, kind in added.items()]
    metadata = _with_features(dict(schema.metadata or {}), added)
    metadata[METADATA_KEY] = about.encode()
    return pa.schema(fields, metadata=metadata)


def _with_features(metadata: dict[bytes, bytes], added: dict[str, pa.DataType]) -> dict[bytes, bytes]:
    """`datasets` reads a file by the feature list in its metadata: a list without the new columns is wrong."""
    stored = metadata.get(b"huggingface")
    if stored is None:
        return metadata
    try:
        parsed = json.loads(stored)
        features = parsed["info"]["features"]
        for name, kind in added.items():
            features[name] = {"dtype": "float64" if kind == pa.float64() else "int64", "_type": "Value"}
    except (ValueError, TypeError, KeyError):
        return {key: value for key, value in metadata.items() if key != b"huggingface"}
    return metadata | {b"huggingface": json.dumps(parsed).encode()}
