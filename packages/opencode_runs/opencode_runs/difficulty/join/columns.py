"""The columns that `join` adds to a dataset, and what the file says about where they come from."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

import pyarrow as pa

from opencode_runs.difficulty.figures import COUNTS
from opencode_runs.difficulty.join.options import JoinOptions
from opencode_runs.difficulty.rate import Rating, Source
from opencode_runs.difficulty.rated import METADATA_KEY
from opencode_runs.difficulty.tally import Tally


def column_names(prefix: str, ks: Sequence[int]) -> list[str]:
    """The names of all columns of one source."""
    return [prefix + name for name in (*COUNTS, *(f"pass_at_{k}" for k in ks))]


def column_arrays(tallies: Sequence[Tally | None], ks: Sequence[int]) -> list[pa.Array]:
    """The columns of one source for some rows, in the order of `column_names`; a row without a tally is null."""
    values = [[None if tally is None else getattr(tally, name) for tally in tallies] for name in COUNTS]
    values += [[None if tally is None else tally.pass_at(k) for tally in tallies] for k in ks]
    return [pa.array(found, type=kind) for found, kind in zip(values, _kinds(ks), strict=True)]


def extend_schema(schema: pa.Schema, prefixes: Sequence[str], ks: Sequence[int], about: str) -> pa.Schema:
    """`schema` with the columns of every prefix at its end (replacing any of the same name) and `about` as metadata."""
    added = {name: kind for prefix in prefixes for name, kind in zip(column_names(prefix, ks), _kinds(ks), strict=True)}
    fields = [field for field in schema if field.name not in added]
    fields += [pa.field(name, kind) for name, kind in added.items()]
    return pa.schema(fields, metadata=_with_features(schema.metadata or {}, added) | {METADATA_KEY: about.encode()})


def provenance(
    name: str, rating: Rating, sources: Sequence[Source], prefixes: Sequence[str], options: JoinOptions
) -> str:
    """What the output says about itself, as JSON: runs, models, sampling, versions, time."""
    described = []
    for source, prefix in zip(sources, prefixes, strict=True):
        found = rating.sources[source]
        described.append(
            {
                **source._asdict(),
                "prefix": prefix,
                "sampling": [json.loads(text) for text in found.sampling],
                "verifiers": list(found.versions),
                "attempts": sum(tally.attempts for tally in found.tasks.values()),
                "errors": sum(tally.errors + tally.unscored for tally in found.tasks.values()),
            }
        )
    about = {
        "format": 1,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "opencode_env": version("opencode-env"),
        "dataset": name,
        "threshold": options.threshold,
        "runs": [{"path": str(run.path), "episodes": run.episodes} for run in rating.runs],
        "sources": described,
    }
    return json.dumps(about, ensure_ascii=False)


def _kinds(ks: Sequence[int]) -> list[pa.DataType]:
    return [pa.int64() if count else pa.float64() for count in COUNTS.values()] + [pa.float64()] * len(ks)


def _with_features(metadata: dict[bytes, bytes], added: dict[str, pa.DataType]) -> dict[bytes, bytes]:
    """`datasets` reads a file by the feature list in its metadata: a list without the new columns is wrong."""
    rest = {key: value for key, value in metadata.items() if key != b"huggingface"}
    try:
        parsed = json.loads(metadata[b"huggingface"])
        for name, kind in added.items():
            dtype = "int64" if kind == pa.int64() else "float64"
            parsed["info"]["features"][name] = {"dtype": dtype, "_type": "Value"}
    except (ValueError, TypeError, KeyError):
        return rest
    return rest | {b"huggingface": json.dumps(parsed).encode()}
