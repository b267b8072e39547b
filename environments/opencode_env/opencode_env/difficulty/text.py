"""Figures as text for a terminal: aligned tables, no colours, no wrapping."""

import textwrap
from collections.abc import Sequence

from opencode_env.difficulty.figures import RateFigures, SourceFigures, TaskFigures

LABEL_WIDTH = 40
HASH_LENGTH = 64
SHORT_HASH = 12


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float | None, digits: int = 2) -> str:
    """A figure with fixed digits, "-" for none."""
    return "-" if value is None else f"{value:,.{digits}f}"


def short(text: str) -> str:
    """A label that fits a column; a content hash keeps its beginning."""
    if len(text) == HASH_LENGTH and all(c in "0123456789abcdef" for c in text):
        return text[:SHORT_HASH]
    return textwrap.shorten(text, LABEL_WIDTH, placeholder="…") if len(text) > LABEL_WIDTH else text


def task_label(key: str, called: str | None) -> str:
    """How a task is called in tables: its id, name or prompt, and its key if that is something else."""
    if not called:
        return short(key)
    return short(called) if called == key else f"{short(called)} ({short(key)})"


def rate_text(figures: RateFigures, limit: int | None) -> str:
    """The answer of `rate`: a line per source, then the tasks, hardest first, at most `limit` of them."""
    parts = [_source_table(figures)]
    if "*" in parts[0]:
        parts.append("* of the tasks with at least k attempts")
    parts += [line for source in figures.sources if (line := _causes(source))]
    single = len(figures.sources) == 1
    body = _task_table(figures.sources[0], limit) if single else _side_by_side(figures.sources, limit)
    parts += ["", body]
    total = len({row.key for source in figures.sources for row in source.rows})
    if limit is not None and total > limit:
        parts.append(f"… {total - limit:,} more tasks (all with --rows 0 or --json)")
    return "\n".join(parts)


def _label(row: TaskFigures) -> str:
    return task_label(row.key, row.id or row.name or row.prompt)


def source_label(source: SourceFigures, sources: Sequence[SourceFigures]) -> str:
    """The model, with the env where several envs are compared."""
    several = len({other.env for other in sources}) > 1
    return f"{source.model} @ {source.env}" if several else source.model


def _plus_minus(value: float | None, stderr: float | None) -> str:
    return number(value) + (f" ±{stderr:.2f}" if stderr is not None else "")


def _source_table(figures: RateFigures) -> str:
    ks = sorted({k for source in figures.sources for k in source.pass_at})
    header = ["model", "tasks", "rated", "attempts", "reward", f"pass≥{figures.threshold:g}"]
    header += [f"pass@{k}" for k in ks] + ["turns", "tokens", "timeouts", "errors", "unscored"]
    rows = [_source_row(source, figures.sources, ks) for source in figures.sources]
    return table(header, rows)


def _source_row(source: SourceFigures, sources: Sequence[SourceFigures], ks: Sequence[int]) -> list[str]:
    return [
        source_label(source, sources),
        f"{source.tasks:,}",
        f"{source.tasks_rated:,}",
        f"{source.attempts:,}",
        _plus_minus(source.avg_reward, source.reward_stderr),
        number(source.pass_rate),
        *(_pass_at(source, k) for k in ks),
        number(source.mean_turns, 1),
        number(source.mean_tokens, 0),
        f"{source.timed_out:,}",
        f"{source.errors:,}",
        f"{source.unscored:,}",
    ]


def _pass_at(source: SourceFigures, k: int) -> str:
    found = source.pass_at.get(k)
    return number(found.value if found else None) + ("*" if found and found.tasks < source.tasks_rated else "")


def _causes(source: SourceFigures) -> str:
    if not source.causes:
        return ""
    named = ", ".join(f"{cause} {count:,}" for cause, count in source.causes.items())
    return f"{source.model}: not counted as attempts: {named}"


def _task_row(row: TaskFigures) -> list[str]:
    return [
        _label(row),
        f"{row.attempts}",
        _plus_minus(row.avg_reward, row.reward_stderr),
        number(row.pass_rate),
        *(number(value) for value in row.pass_at.values()),
        number(row.mean_turns, 1),
        number(row.mean_tokens, 0),
        f"{row.timed_out}",
        f"{row.errors}",
        f"{row.unscored}",
    ]


def _task_table(source: SourceFigures, limit: int | None) -> str:
    ks = list(source.rows[0].pass_at) if source.rows else []
    header = ["task", "n", "reward", "pass", *(f"pass@{k}" for k in ks)]
    header += ["turns", "tokens", "timeouts", "errors", "unscored"]
    return table(header, [_task_row(row) for row in source.rows[:limit]])


def _side_by_side(sources: Sequence[SourceFigures], limit: int | None) -> str:
    """One column per source: mean reward, its standard error, attempts and errors."""
    by_key: dict[str, list[TaskFigures | None]] = {}
    labels: dict[str, str] = {}
    for column, source in enumerate(sources):
        for row in source.rows:
            cells = by_key.setdefault(row.key, [None] * len(sources))
            cells[column] = row
            labels[row.key] = _label(row)
    header = ["task", *(source_label(source, sources) for source in sources)]
    return table(header, [[labels[key], *map(_cell, cells)] for key, cells in list(by_key.items())[:limit]])


def _cell(row: TaskFigures | None) -> str:
    if row is None:
        return "-"
    failed = row.errors + row.unscored
    return f"{_plus_minus(row.avg_reward, row.reward_stderr)} (n={row.attempts}" + (
        f", {failed} err)" if failed else ")"
    )
