"""Where a run keeps its traces: the directories of `vf-eval` and of prime-rl, and the run's own config.

`vf-eval` writes `RUN/traces.jsonl` and `RUN/configs/resolved/eval.json` (verifiers 0.4, `cli/output.py`).
prime-rl's file monitor writes `RUN/rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl`, where `effective`
repeats a part of `all`: only `eval/all` is read, and of one step, because every step is another policy.
"""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from opencode_env.difficulty.errors import BadInputError

TRACES_FILE = "traces.jsonl"
MAX_NAMED = 5


@dataclass(frozen=True)
class TraceFile:
    """One `traces.jsonl` to read."""

    path: Path
    size: int
    """Bytes when it was found; a running eval may append meanwhile."""
    model: str | None
    """The model of the run's saved config: whom an episode without any trace belongs to."""


class TasksetSettings(BaseModel):
    """The taskset of a run's saved config; its own options stay as they are."""

    model_config = ConfigDict(extra="allow")
    id: str = ""


class _EnvSettings(BaseModel):
    taskset: TasksetSettings = TasksetSettings()


class RunSettings(BaseModel):
    """What rating and joining read of a run's saved config (`configs/resolved/*.json`)."""

    model_config = ConfigDict(extra="ignore", protected_namespaces=())
    model: str | None = None
    env: _EnvSettings = _EnvSettings()


def find_trace_files(paths: list[Path]) -> list[TraceFile]:
    """Find the trace file of each run directory (or file) named; the same file named twice is read once.

    Raises:
        BadInputError: a path does not exist or holds no run, or not exactly one.
    """
    files = dict.fromkeys(_locate(path).resolve() for path in paths)
    return [_open_check(file) for file in files]


def run_settings(trace_file: Path) -> RunSettings:
    """The saved config of the run that wrote `trace_file`; empty if it has none that can be read."""
    configs = sorted((trace_file.parent / "configs" / "resolved").glob("*.json"))
    if not configs:
        return RunSettings()
    try:
        return RunSettings.model_validate(json.loads(configs[0].read_text()))
    except (OSError, ValueError, ValidationError):
        return RunSettings()


def _open_check(file: Path) -> TraceFile:
    try:
        with file.open("rb"):
            size = file.stat().st_size
    except OSError as error:
        raise BadInputError(f'cannot read traces "{file}": {error.strerror}') from None
    return TraceFile(file, size, run_settings(file).model)


def _locate(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.exists():
        raise BadInputError(f'run "{path}" does not exist')
    if (path / TRACES_FILE).is_file():
        return path / TRACES_FILE
    if (path / "eval" / "all" / TRACES_FILE).is_file():
        return path / "eval" / "all" / TRACES_FILE
    steps = path / "rollouts" if (path / "rollouts").is_dir() else path
    if any(steps.glob("step_*")):
        return _one_step(path, steps)
    raise BadInputError(f'run "{path}" has no {TRACES_FILE}{_nested_runs(path)}')


def _one_step(path: Path, steps: Path) -> Path:
    """The eval traces of a prime-rl run that evaluated once."""
    found = sorted(steps.glob(f"step_*/eval/all/{TRACES_FILE}"))
    if len(found) == 1:
        return found[0]
    if not found:
        raise BadInputError(
            f'prime-rl run "{path}" has no eval traces (rollouts/step_N/eval/all/{TRACES_FILE}); '
            f"to rate training rollouts, name one {TRACES_FILE} itself"
        )
    named = ", ".join(sorted(file.parents[2].name for file in found)[:MAX_NAMED])
    raise BadInputError(
        f'prime-rl run "{path}" evaluated {len(found)} steps ({named}), each another policy: '
        f'name one, for instance "{found[-1].parents[2]}"'
    )


def _nested_runs(path: Path) -> str:
    nested = sorted(file.parent.name for file in path.glob(f"*/{TRACES_FILE}"))
    if not nested:
        return ": it is not a run directory of vf-eval or prime-rl"
    more = ", …" if len(nested) > MAX_NAMED else ""
    return f", but {len(nested)} runs below it ({', '.join(nested[:MAX_NAMED])}{more}): name those to rate"
