"""A configuration of `vf-eval` as prime-rl's `evals` spells it; nothing of prime-rl is needed for that."""

import tomllib
from pathlib import Path
from typing import Any

from verifiers.v1.clients import EvalClientConfig
from verifiers.v1.configs.cli.eval import EvalConfig

Table = dict[str, Any]


def read(path: Path) -> Table:
    """A TOML file."""
    return tomllib.loads(path.read_text())


def as_evals(path: Path) -> Table:
    """A file for `vf-eval` as one for prime-rl's `evals`: its environment is the only source.

    Raises:
        ValueError: the file sets something of which nothing is known here.
    """
    document = read(path)
    sampling = document.pop("sampling", {})
    if "max_tokens" in sampling:
        sampling["max_completion_tokens"] = sampling.pop("max_tokens")
    bound = document.pop("max_concurrent", EvalConfig.model_fields["max_concurrent"].default)
    client = EvalClientConfig().model_dump(include={"base_url", "api_key_var"}) | document.pop("client", {})
    document.pop("run", None)
    evals: Table = {
        "client": client,
        "sampling": sampling,
        "group_size": document.pop("num_rollouts", 1),
        "concurrency": {"min_inflight": bound, "max_inflight": bound},
        "source": [{"name": path.stem, "env": document.pop("env")}],
    }
    selected = document.pop("select", {})
    if "limit" in selected:
        evals["num_examples"] = selected.pop("limit")
    converted = {"model": document.pop("model"), "eval": evals}
    if document or selected:
        raise ValueError(f'"{path}": nothing is known of {sorted([*document, *selected])}')
    return converted
