"""Which runs a page shows: each trace file is one, in the order in which the policy changed."""

import re
from dataclasses import dataclass
from pathlib import Path

from opencode_runs.traces.errors import BadInputError
from opencode_runs.traces.runs import TRACES_FILE, TraceFile, find_trace_files

STEPPED = re.compile(r"step_(\d+)$")


@dataclass(frozen=True)
class Run:
    file: TraceFile
    label: str
    series: str
    """Runs of one series are points of a curve."""
    step: int | None
    """Of a training run; None elsewhere."""


def find_runs(paths: list[Path]) -> list[Run]:
    """The runs at `paths`: a run, a trace file, a training run of prime-rl with all its steps, or a folder of runs.

    Raises:
        BadInputError: nothing that can be read is there.
    """
    files = dict.fromkeys(place for path in paths for place in _places(path))
    runs = [_run(file) for file in find_trace_files(list(files))]
    labels = [run.label for run in runs]
    return [run if labels.count(run.label) == 1 else Run(run.file, _longer(run), run.series, run.step) for run in runs]


def _places(path: Path) -> list[Path]:
    if path.is_file() or not path.is_dir() or (path / TRACES_FILE).is_file():
        return [path]
    for base in ("", "rollouts/"):
        found = [*path.glob(f"{base}step_*/*/all/{TRACES_FILE}"), *path.glob(f"{base}step_*/{TRACES_FILE}")]
        if found:
            return sorted(found, key=lambda file: (_kind(file), _step(file) or 0, file))
    found = [*path.glob(f"*/all/{TRACES_FILE}")] or sorted(path.glob(f"*/{TRACES_FILE}"), key=_by_number)
    if not found:
        raise BadInputError(f'"{path}" holds no {TRACES_FILE}: it is neither a run nor a folder of runs')
    return found


def _by_number(file: Path) -> tuple[object, ...]:
    """Natural order: step-9 before step-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", file.parent.name))


def _step(file: Path) -> int | None:
    return next((int(found[1]) for part in reversed(file.parts) if (found := STEPPED.match(part))), None)


def _kind(file: Path) -> str:
    """`train` or `eval`, as prime-rl names them."""
    return file.parts[-3] if file.parts[-2] in ("all", "effective") else ""


def _run(file: TraceFile) -> Run:
    step, kind = _step(file.path), _kind(file.path)
    if step is None:
        return Run(file, file.path.parent.name, "", None)
    return Run(file, f"step {step}{f' {kind}' if kind else ''}", kind or "steps", step)


def _longer(run: Run) -> str:
    """Told apart from another of the same name."""
    above = [part for part in run.file.path.parts[:-1] if part not in ("all", "effective", "train", "eval", "rollouts")]
    return " / ".join([*[part for part in above[-3:-1] if not STEPPED.match(part)][-1:], run.label])
