"""What a joined file says about where its figures come from (schema metadata `opencode_difficulty`)."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

from opencode_env.difficulty.join_options import JoinOptions
from opencode_env.difficulty.rate import Rating, Source


def provenance(
    name: str, rating: Rating, sources: Sequence[Source], prefixes: Sequence[str], options: JoinOptions
) -> str:
    """What the output says about itself, as JSON: runs, models, sampling, versions, time."""
    return json.dumps(
        {
            "format": 1,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "opencode_env": _package_version(),
            "dataset": name,
            "threshold": options.threshold,
            "runs": [{"path": str(run.path), "episodes": run.episodes} for run in rating.runs],
            "sources": [
                {
                    "env": source.env,
                    "model": source.model,
                    "prefix": prefix,
                    "sampling": [json.loads(text) for text in rating.sources[source].sampling],
                    "verifiers": list(rating.sources[source].versions),
                    "attempts": sum(t.attempts for t in rating.sources[source].tasks.values()),
                    "errors": sum(t.errors + t.unscored for t in rating.sources[source].tasks.values()),
                }
                for source, prefix in zip(sources, prefixes, strict=True)
            ],
        },
        ensure_ascii=False,
    )


def _package_version() -> str:
    try:
        return version("opencode-env")
    except PackageNotFoundError:
        return "unknown"
