"""Our configuration files as prime-rl reads them: `configs/rl` as they are, `configs/eval` as sources of its evals."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from prime_rl.configs.evals import EvalsConfig
from prime_rl.configs.rl import RLConfig
from rollout_sandbox.compat import AFTER_0_4_0

from scripts.prime_rl_trial.sources import as_evals, read

ROOT = Path(__file__).parents[2]

QWEN3 = {"name": "qwen3", "enable_thinking": False}
"""The renderer of the trial's engine."""
WORKERS = 2
"""Environment workers of each source."""


def dry_run(path: Path, outputs: Path) -> str | None:
    """What `rl @ PATH --dry-run` says against a file; None if it takes it."""
    argv = ["rl", "@", str(path), "--dry-run", "--output-dir", str(outputs), "--run.name", f"dry-{path.stem}"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stdout + done.stderr


def refused_evals() -> Iterator[tuple[str, str | None]]:
    """Each file of `configs/eval` and what prime-rl's classes say against it; None if they take it."""
    for path in sorted((ROOT / "configs" / "eval").glob("*.toml")):
        if path.stem == ("podman" if AFTER_0_4_0 else "podman-custom"):
            continue  # of the other version of verifiers
        try:
            EvalsConfig.model_validate(as_evals(path))
        except ValueError as error:
            yield path.stem, str(error)
        else:
            yield path.stem, None


def trial(
    name: str,
    directory: Path,
    url: str,
    port: int,
    rows: Path,
    keep: Path | None = None,
    cluster: Mapping[str, Any] | None = None,
    **agent: Any,
) -> RLConfig:
    """`configs/rl/NAME.toml` for this machine: confined local sandboxes, the trial's engine, groups of four.

    Args:
        name: of the file.
        directory: of the tokenizer, which is the policy's name.
        url: of the engine.
        port: of the environment server.
        rows: the dataset.
        keep: folder in which every turn is kept; None: no turn is.
        cluster: the source's `cluster`; None: none.
        agent: further fields of the agent's seat.
    """
    document = read(ROOT / "configs" / "rl" / f"{name}.toml")
    document["model"]["name"] = str(directory)
    document["seq_len"] = 1 << 16
    del document["inference"]
    run = document["orchestrator"]
    run |= {"batch_size": 8, "renderer": QWEN3, "env_server_base_port": port}
    run["model"] = {"client": {"base_url": url, "api_key_var": "NO_SUCH_KEY"}}
    run["concurrency"] = {"min_inflight": 4, "max_inflight": 4}
    (source,) = run["train"]["source"]
    source["group_size"] = 4
    source["serve"] = {"pool": {"type": "static", "num_workers": WORKERS}}
    source["env"]["agent"] |= {"runtime": {"type": "subprocess"}, "max_total_tokens": 1 << 16, **agent}
    source["env"]["taskset"] = {"id": "opencode-env", "dataset": str(rows)}
    if keep is not None:
        source["env"]["turns"] = {"keep": str(keep)}
    if cluster is not None:
        source["env"]["cluster"] = cluster
    return RLConfig.model_validate(document)
