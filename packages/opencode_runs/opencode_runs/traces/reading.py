"""Reading runs: where they keep their traces, and their episodes line by line, each once.

`vf-eval` writes `RUN/traces.jsonl` and `RUN/configs/resolved/eval.json` (verifiers 0.4, `cli/output.py`).
prime-rl's file monitor writes `RUN/rollouts/step_N/{train,eval}/{all,effective}/traces.jsonl`, where `effective`
repeats a part of `all`.

Memory holds one line, and one integer per episode (about 100 bytes; a trace is a thousand times that), so that an
episode found twice (a copied run, prime-rl's `effective` next to `all`) counts once.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from pydantic import AliasPath, BaseModel, Field, ValidationError, ValidationInfo, computed_field, field_validator

from opencode_runs.errors import BadInputError, LineError, VersionError
from opencode_runs.progress import Progress
from opencode_runs.traces.record import EpisodeRecord, parse_line

TRACES_FILE = "traces.jsonl"
_MAX_NAMED = 5
PRIME_RL = ("*/all/", "step_*/*/all/", "step_*/", "rollouts/step_*/*/all/", "rollouts/step_*/")
"""Where the traces of a step stand in it, in the folder of its steps, and in the whole run."""


class RunSettings(BaseModel, protected_namespaces=()):
    """Sets what is read of a run's saved config (`configs/resolved/*.json`); what is not of its type is as if not
    there."""

    model: str | None = None
    """Whom an episode without any trace belongs to."""
    num_rollouts: int | None = None
    """Rollouts of each task; None if the run does not say."""
    retries: Any = Field(None, validation_alias=AliasPath("env", "retries"))
    agent_version: str | None = Field(None, validation_alias=AliasPath("env", "agent", "harness", "version"))
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


def find_trace_files(paths: Sequence[Path], kind: Literal["", "eval", "train"] = "") -> list[TraceFile]:
    """The trace files at `paths`: of a run, a file itself, a training run of prime-rl, or all runs of a folder; the
    same file named twice is read once.

    Of prime-rl's steps, `eval` reads the evaluation of one, and `train` the training rollouts of all.

    Raises:
        BadInputError: nothing that can be read is there, or several evaluated steps, each of another policy.
    """
    files = dict.fromkeys(place.resolve() for path in paths for place in _places(path, kind))
    return [TraceFile(file, _size(file), _settings(file)) for file in files]


def _places(path: Path, kind: str) -> list[Path]:
    if path.is_file():
        return [path]
    if not path.exists():
        raise BadInputError(f'run "{path}" does not exist')
    if (path / TRACES_FILE).is_file():
        return [path / TRACES_FILE]
    found = [place for pattern in PRIME_RL for place in path.glob(f"{pattern}{TRACES_FILE}")]
    if found:
        return _of_kind(path, sorted(found, key=lambda file: (_kind(file), _step(file) or 0, file)), kind)
    found = sorted(path.glob(f"*/{TRACES_FILE}"), key=_by_number)
    if not found:
        raise BadInputError(f'"{path}" holds no {TRACES_FILE}: it is neither a run nor a folder of runs')
    return found


def _of_kind(path: Path, found: list[Path], kind: str) -> list[Path]:
    """Return what is read of prime-rl's files: `effective` repeats a part of `all`, and every step is another
    policy."""
    training = [place for place in found if _kind(place) == "train"]
    if not kind or (kind == "train" and training):
        return training if kind else found
    evaluated = [place for place in found if place not in training]
    if not evaluated:
        raise BadInputError(
            f'prime-rl run "{path}" has no eval traces (rollouts/step_N/eval/all/{TRACES_FILE}); '
            f"to rate training rollouts, name one {TRACES_FILE} itself"
        )
    if len(evaluated) > 1:
        named = ", ".join(f"step_{_step(place)}" for place in evaluated[:_MAX_NAMED])
        raise BadInputError(
            f'prime-rl run "{path}" evaluated {len(evaluated)} steps ({named}), each another policy: '
            f'name one, for instance "{evaluated[-1].parents[2 if _kind(evaluated[-1]) else 0]}"'
        )
    return evaluated


def _settings(trace_file: Path) -> RunSettings:
    place = saved_config(trace_file)
    try:
        return RunSettings() if place is None else RunSettings.model_validate_json(place.read_bytes())
    except (OSError, ValidationError):
        return RunSettings()


def saved_config(trace_file: Path) -> Path | None:
    """Return where the run of a trace file saved its whole configuration; None if it did not."""
    return min((trace_file.parent / "configs" / "resolved").glob("*.json"), default=None)


def _size(file: Path) -> int:
    try:
        with file.open("rb"):
            return file.stat().st_size
    except OSError as error:
        raise BadInputError(f'cannot read traces "{file}": {error.strerror}') from None


STEPPED = re.compile(r"step_(\d+)$")


@dataclass(frozen=True)
class Run:
    file: TraceFile
    label: str
    series: str
    """Runs of one series are points of a curve."""
    step: int | None
    """The step of a training run; None elsewhere."""


def find_runs(paths: list[Path]) -> list[Run]:
    """The runs at `paths`, of a training run all its steps, with labels that tell them apart.

    Raises:
        BadInputError: nothing that can be read is there.
    """
    runs = [_run(file) for file in find_trace_files(paths)]
    labels = [run.label for run in runs]
    return [run if labels.count(run.label) == 1 else Run(run.file, _longer(run), run.series, run.step) for run in runs]


def _by_number(file: Path) -> tuple[object, ...]:
    """Natural order: step-9 before step-10."""
    return tuple((int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", file.parent.name))


def _step(file: Path) -> int | None:
    return next((int(found[1]) for part in reversed(file.parts) if (found := STEPPED.match(part))), None)


def _kind(file: Path) -> str:
    return file.parts[-3] if file.parts[-2] in ("all", "effective") else ""


def _run(file: TraceFile) -> Run:
    step, kind = _step(file.path), _kind(file.path)
    if step is None:
        return Run(file, file.path.parent.name, "", None)
    return Run(file, f"step {step}{f' {kind}' if kind else ''}", kind or "steps", step)


def _longer(run: Run) -> str:
    """A label that tells the run from another of the same name."""
    above = [part for part in run.file.path.parts[:-1] if part not in ("all", "effective", "train", "eval", "rollouts")]
    return " / ".join([*[part for part in above[-3:-1] if not STEPPED.match(part)][-1:], run.label])


MAX_COMPLAINTS = 3
READ_BYTES = 1 << 20


class WithId(Protocol):
    """Anything with an id, which tells an episode that is read twice."""

    @property
    def id(self) -> str: ...


Found = TypeVar("Found", bound=WithId)
Parsed = tuple[int, Found | LineError | None]
"""A line: its bytes, and its episode, or what is wrong with it, or None for an empty one."""


class TraceFileReport(BaseModel):
    """Tells how reading one trace file went."""

    path: Path
    episodes: int = 0
    duplicates: int = 0
    """Episodes that were read before, from this file or another."""
    repeated: int = 0
    """How many of the duplicates stand in this file before."""
    torn: int = 0
    malformed: int = 0
    truncated_end: bool = False
    """The last line is not whole: the run was killed while writing it, or is still writing."""
    complaints: list[str] = []

    @computed_field  # type: ignore[prop-decorator]
    @property
    def unreadable(self) -> int:
        """Lines that hold no episode this command can read."""
        return self.torn + self.malformed

    def warnings(self) -> Iterator[str]:
        """Yield what whoever named the run should know."""
        if self.unreadable:
            end = "; the last line is cut off" if self.truncated_end else ""
            lines = "line" if self.unreadable == 1 else "lines"
            yield f'"{self.path}": {self.unreadable:,} {lines} could not be read ({"; ".join(self.complaints)}){end}'
        if self.duplicates:
            yield f'"{self.path}": {self.duplicates:,} episodes were seen before and count once'
        if not self.episodes and not self.duplicates:
            yield f'"{self.path}": the run has no episode yet'


@dataclass
class TraceReader(Generic[Found]):
    """Reads trace files; afterwards `runs` says of each how it went."""

    lines: Callable[[TraceFile], Iterator[Parsed[Found]]]
    """Every line of a file, in order: `lines_of`, or one that does more."""
    runs: list[TraceFileReport] = field(default_factory=list)
    place: tuple[int, int] = (0, 0)
    """Where in its file the last line begins, and its bytes."""
    _seen: set[int] = field(default_factory=set)

    def episodes(self, files: Sequence[TraceFile]) -> Iterator[tuple[TraceFile, Found]]:
        """Every episode that can be read and was not read before, with its file.

        Raises:
            BadInputError: a file cannot be read, or holds no episode, or traces of another schema.
        """
        with Progress("reading traces", sum(file.size for file in files), "MB", scale=1e6) as progress:
            for file in files:
                report = TraceFileReport(path=file.path)
                self.runs.append(report)
                elsewhere = frozenset(self._seen)
                for episode in self._readable(file, report, progress):
                    identity = hash(episode.id)
                    if identity in self._seen:
                        report.duplicates += 1
                        report.repeated += identity not in elsewhere
                        continue
                    self._seen.add(identity)
                    report.episodes += 1
                    yield file, episode
                if report.unreadable and not report.episodes and not report.duplicates:
                    raise BadInputError(f'"{file.path}" holds no verifiers episode: {report.complaints[0]}')

    def _readable(self, file: TraceFile, report: TraceFileReport, progress: Progress) -> Iterator[Found]:
        try:
            end = 0
            for number, (size, found) in enumerate(self.lines(file), start=1):
                progress.update(size)
                self.place, end = (end, size), end + size
                if isinstance(found, VersionError):
                    raise BadInputError(
                        f'"{file.path}" line {number}: {found}: read this run with the release that knows it'
                    )
                if isinstance(found, LineError):
                    report.truncated_end = found.unended
                    report.torn += found.torn
                    report.malformed += not found.torn
                    if len(report.complaints) < MAX_COMPLAINTS:
                        report.complaints.append(f"line {number}: {found}")
                elif found is not None:
                    yield found
        except OSError as error:
            raise BadInputError(f'cannot read traces "{file.path}": {error.strerror}') from None


def lines_of(file: TraceFile) -> Iterator[Parsed[EpisodeRecord]]:
    with file.path.open("rb", buffering=READ_BYTES) as lines:
        for line in lines:
            yield parsed(line)


def parsed(line: bytes) -> Parsed[EpisodeRecord]:
    """A line as `TraceReader` takes it."""
    if line.isspace():
        return len(line), None
    try:
        return len(line), parse_line(line)
    except LineError as error:
        error.unended = not line.endswith(b"\n")
        return len(line), error.with_traceback(None)
