"""What whoever started `vf-eval` is told of the run as a whole, on standard error.

verifiers keeps its log off the terminal while it shows its dashboard, and without one ends with every trace as JSON.
So our warnings are shown before the first rollout and once more at the end, where a table says what came of the run
and one line how an interrupted one goes on. Only in the process of `vf-eval` itself: a trainer's and a server's say
what they want.
"""

import asyncio
import logging
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opencode_rubrics.verify_commands import commands_without_program
from opencode_runs.traces.record import tokens_used
from rollout_sandbox.told import task_name
from verifiers.v1.cli.output import attempt_log_file, saved_config_path
from verifiers.v1.episode import Episode
from verifiers.v1.utils.trace_store import TRACES_FILE

from opencode_env.cli_agent.evaluation import CapConfig, CapReachedError, RunEndedError
from opencode_env.cli_agent.rollout_limit import DEFAULT_ROLLOUT_SECONDS
from opencode_env.cli_agent.traces import AGENT_RECORD

AGENT_BYTES = 350 << 20
"""Memory of one agent with its sandbox."""
ROLLOUTS_A_CORE = 8
"""So many agents keep a core busy: each starts for one to three seconds, and then waits for its model."""
_LIBRARY = "verifiers.v1"
_MOST_TASKS, _MOST_WARNINGS, _MOST_CHARS = 20, 10, 1000


@dataclass(frozen=True)
class _Row:
    """What is told of one rollout that has ended."""

    place: int
    """Of its task in the taskset."""
    task: str
    reward: float | None
    """None: an error."""
    tokens: tuple[int, int, int]
    """Of all its calls: read anew, read from a cache, sampled."""
    seconds: float
    """From the start of its sandbox until that is removed; 0 where it did not start."""


class RunReport(logging.Handler):
    """Watches one run of `vf-eval`; does nothing in any other process."""

    def __init__(self, *, local: bool, limited: bool, cap: CapConfig | None = None) -> None:
        """`local`: agents run in sandboxes on this machine; `limited`: the seat has a time limit of its own."""
        super().__init__(logging.INFO)
        self.active = Path(sys.argv[0]).name == "vf-eval" or sys.argv[0].endswith("verifiers/v1/cli/eval/main.py")
        self.run_directory: Path | None = None
        self._local, self._limited, self._cap = local, limited, cap or CapConfig()
        self._planned, self._began = 0, 0.0
        self._rows: list[_Row] = []
        self._kept: dict[str, _Row] = {}
        """What an earlier start of the run has finished, by episode."""
        self._warnings: Counter[str] = Counter()
        if self.active:
            logging.getLogger(_LIBRARY).addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep our warnings until rollouts begin, and later those of the whole run; learn where its files are."""
        if record.msg == "results: %s" and isinstance(record.args, tuple):
            self.run_directory = Path(str(record.args[0]))
        elif record.levelno < logging.WARNING or record.name.startswith(f"{_LIBRARY}.cli"):
            return
        elif not self._began or getattr(record, "of_the_run", False):
            self.warn(record.getMessage(), shown=logging.lastResort is not None)

    def warn(self, told: str, *, shown: bool = True) -> None:
        """Tell it at the end, and at once if nothing else shows it."""
        self._warnings[told] += 1
        if not shown and self._warnings[told] == 1:
            _say([f"warning: {told}"])

    def plan(self, count: int) -> None:
        """So many more rollouts are to be run."""
        self._planned += count if self.active else 0

    def begin(self, places: asyncio.Semaphore | None) -> None:
        """A rollout waits for one of these places; with the first, say what the machine bears."""
        if not self.active or self._began:
            return
        self._began = time.monotonic()
        told = (
            [] if self._limited else [f"each rollout has {DEFAULT_ROLLOUT_SECONDS:,.0f} s where its task names no time"]
        )
        at_once = min(self._planned, self._planned if places is None else places._value)
        if self._local and (problem := beyond_the_machine(at_once)):
            told.append(problem)
        _say(told)

    def progress(self) -> str:
        """How far the run is with a rollout that ends, for its line in the log."""
        if not self._began:
            return ""
        kept, done, minutes = len(self._kept), len(self._rows) + 1, (time.monotonic() - self._began) / 60
        left, rate = minutes / done * max(self._planned - done, 0), done / max(minutes, 1e-3)
        return f" run={kept + done}/{kept + self._planned} per_minute={rate:.1f} minutes_left={left:.0f}"

    def keep(self, episode: Episode[Any, Any, Any]) -> None:
        """Count a rollout of an earlier start of the run."""
        if self.active:
            self._kept[episode.id] = _row(episode)

    def finish(self, episode: Episode[Any, Any, Any]) -> None:
        """Note what came of a rollout, for good."""
        if not self.active:
            return
        self._rows.append(_row(episode))
        for one in episode.traces:
            for problem in commands_without_program(one):
                self.warn(f"task {self._rows[-1].task}: {problem}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, frames: TracebackType | None
    ) -> None:
        if not self.active:
            return
        logging.getLogger(_LIBRARY).removeHandler(self)
        _say(self._closing(kind))
        if isinstance(error, RunEndedError):
            raise SystemExit(str(error)) from error  # which verifiers would show below a traceback

    def _closing(self, kind: type[BaseException] | None) -> Iterator[str]:
        for told, count in self._warnings.most_common(_MOST_WARNINGS):
            yield f"warning: {told}" + (f" (and {count - 1} more like it)" if count > 1 else "")
        if len(self._warnings) > _MOST_WARNINGS:
            yield f"and {len(self._warnings) - _MOST_WARNINGS} other warnings, which the log has"
        if rows := [*self._kept.values(), *self._rows]:
            yield from _table(rows, self._cap)
        if self._began and (missing := self._planned - len(self._rows)):
            yield f"{missing:,} of {len(self._kept) + self._planned:,} rollouts are missing"
        if self.run_directory is not None:
            yield f"traces: {self.run_directory / TRACES_FILE}  log: {attempt_log_file(self.run_directory)}"
            interrupted = kind in (asyncio.CancelledError, KeyboardInterrupt)
            saved = saved_config_path(self.run_directory)
            if saved is not None and (interrupted or kind is CapReachedError):
                command = f"vf-eval @ {shlex.quote(str(saved))} --resume{self._cap.options()}"
                yield f"{'interrupted; ' * interrupted}to go on: {command}"


def _row(episode: Episode[Any, Any, Any]) -> _Row:
    trace = next(iter(episode.traces), None)
    reward = None if trace is None or episode.errors or not trace.ok else trace.reward
    tokens = tokens_used(call.usage for one in episode.traces for call in one.calls)
    records = [one.info.get(AGENT_RECORD, {}) for one in episode.traces]
    seconds = max((record.get("rollout_seconds", 0.0) for record in records), default=0.0)
    data = episode.task.data
    return _Row(data.idx or 0, task_name(data), reward, tokens, seconds)


def beyond_the_machine(at_once: int) -> str | None:
    """What is said where so many local agents at once do not fit this machine's memory or cores."""
    cores, memory = len(os.sched_getaffinity(0)), _free_memory()
    fits = max(1, min(memory // AGENT_BYTES, cores * ROLLOUTS_A_CORE))
    if at_once <= fits:
        return None
    return (
        f"warning: the agents of {at_once} rollouts at once (-c) want {at_once * AGENT_BYTES / 2**30:.1f} GiB and "
        f"{-(-at_once // ROLLOUTS_A_CORE)} cores; {memory / 2**30:.1f} GiB and {cores} cores are there: -c {fits} fits"
    )


def _free_memory() -> int:
    """Bytes that programs can still have, by the machine and by the control groups of this process."""
    found = [os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            found = [int(line.split()[1]) << 10]
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        used = int(Path("/sys/fs/cgroup/memory.current").read_text())
    except (OSError, ValueError):
        return found[0]
    return min(found[0], max(int(limit) - used, 0)) if limit.isdigit() else found[0]


def _table(rows: Sequence[_Row], cap: CapConfig) -> Iterator[str]:
    """A line for each task, if there are not too many, and one for all."""
    tasks: dict[str, list[_Row]] = {}
    for row in sorted(rows, key=lambda row: row.place):
        tasks.setdefault(row.task, []).append(row)
    shown = list(tasks.items()) if len(tasks) <= _MOST_TASKS else []
    if len(tasks) != 1:
        shown.append((f"all {len(tasks)} tasks", list(rows)))
    cells: list[tuple[str, ...]] = [
        ("task", "rollouts", "errors", "mean reward", "pass rate", "mean seconds", "tokens", "cost")
    ]
    cells += [(name, *_figures(some, cap)) for name, some in shown]
    cells = cells if cap.prices else [line[:-1] for line in cells]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    for line in cells:
        first, *others = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join([line[0].ljust(len(first)), *others])


def _figures(rows: Sequence[_Row], cap: CapConfig) -> tuple[str, ...]:
    rewards = [row.reward for row in rows if row.reward is not None]
    scored = len(rewards)
    mean = f"{sum(rewards) / scored:.3f}" if scored else "-"
    passed = f"{sum(reward >= 1 for reward in rewards) / scored:.2f}" if scored else "-"
    seconds = sum(row.seconds for row in rows) / len(rows)
    dollars = sum(cap.dollars(row.tokens) or 0.0 for row in rows)
    return (
        f"{len(rows)}",
        f"{len(rows) - scored}",
        mean,
        passed,
        f"{seconds:.1f}",
        f"{sum(sum(row.tokens) for row in rows):,}",
        f"${dollars:,.4f}",
    )


def _say(lines: Iterator[str] | Sequence[str]) -> None:
    """Whoever named a task or printed something writes no escape sequences on the terminal, and no endless lines."""
    for line in lines:
        plain = "".join(letter if letter.isprintable() else " " for letter in line[:_MOST_CHARS])
        sys.stderr.write(plain + "\n")
    sys.stderr.flush()
