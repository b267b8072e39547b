"""Where a run keeps its traces: the directories of `vf-eval` and of prime-rl, and the run's own config.

`vf-eval` writes `RUN/traces.jsonl` and `RUN/configs/resolved/eval.json` (verifiers 0.4, `cli/output.py`).
prime-rl's file monitor writes `RUN/rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl`, where `effective`
repeats a part of `all`: for rating only `eval/all` is read, and of one step, because every step is another policy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import AliasPath, BaseModel, Field, ValidationError, ValidationInfo, field_validator

from opencode_runs.traces.errors import BadInputError

TRACES_FILE = "traces.jsonl"
MAX_NAMED = 5


class RunSettings(BaseModel, protected_namespaces=()):
    """What is read of a run's saved config (`configs/resolved/*.json`); what is not of its type is as if not there."""

    model: str | None = None
    """Whom an episode without any trace belongs to."""
    num_rollouts: int | None = None
    """Rollouts of each task; None if the run does not say."""
    retries: Any = Field(None, validation_alias=AliasPath("env", "retries"))
    keep: Path | None = Field(None, validation_alias=AliasPath("env", "turns", "keep"))
    """Where it kept turns."""
    taskset: dict[str, Any] = Field(default_factory=dict, validation_alias=AliasPath("env", "taskset"))

    @field_validator("*", mode="wrap")
    @classmethod
    def _or_default(cls, value: Any, read: Callable[[Any], Any], info: ValidationInfo) -> Any:
        try:
            return read(value)
        except ValidationError:
            return cls.model_fields[str(info.field_name)].get_default(call_default_factory=True)


@dataclass(frozen=True)
class TraceFile:
    path: Path
    size: int
    """Bytes when it was found; a running eval may append meanwhile."""
    settings: RunSettings
    """Empty if the run has no saved config that can be read."""


def find_trace_files(paths: list[Path], *, training: bool = False) -> list[TraceFile]:
    """Find the trace file of each run directory (or file) named; the same file named twice is read once.

    With `training`, a prime-rl run stands for its training rollouts, of every step.

    Raises:
        BadInputError: a path does not exist or holds no run, or not exactly one.
    """
    places = [place for path in paths for place in (_training_files(path) if training else []) or [_locate(path)]]
    files = dict.fromkeys(place.resolve() for place in places)
    return [TraceFile(file, _size(file), _settings(file)) for file in files]


def _settings(trace_file: Path) -> RunSettings:
    place = saved_config(trace_file)
    try:
        return RunSettings() if place is None else RunSettings.model_validate_json(place.read_bytes())
    except (OSError, ValidationError):
        return RunSettings()


def saved_config(trace_file: Path) -> Path | None:
    """Where the run of a trace file saved its whole configuration; None if it did not."""
    return min((trace_file.parent / "configs" / "resolved").glob("*.json"), default=None)


def _size(file: Path) -> int:
    try:
        with file.open("rb"):
            return file.stat().st_size
    except OSError as error:
        raise BadInputError(f'cannot read traces "{file}": {error.strerror}') from None


def _training_files(path: Path) -> list[Path]:
    """The training traces of a prime-rl run, or of one step of it, by step; empty if it is not one."""
    pattern = f"train/all/{TRACES_FILE}"
    found = [place for where in ("", "step_*/", "rollouts/step_*/") for place in path.glob(f"{where}{pattern}")]
    return sorted(found, key=lambda place: (len(place.parts[-4]), place))


def _locate(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.exists():
        raise BadInputError(f'run "{path}" does not exist')
    for place in (path / TRACES_FILE, path / "eval" / "all" / TRACES_FILE):
        if place.is_file():
            return place
    steps = path / "rollouts" if (path / "rollouts").is_dir() else path
    if any(steps.glob("step_*")):
        return _one_step(path, steps)
    nested = sorted(file.parent.name for file in path.glob(f"*/{TRACES_FILE}"))
    more = ", …" if len(nested) > MAX_NAMED else ""
    hint = f", but {len(nested)} runs below it ({', '.join(nested[:MAX_NAMED])}{more}): name those"
    hint = hint if nested else ": it is not a run directory of vf-eval or prime-rl"
    raise BadInputError(f'run "{path}" has no {TRACES_FILE}{hint}')


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
