"""Figures as text for a terminal."""

from collections.abc import Sequence

from opencode_runs.difficulty.figures import SHOWN, PassAt, RateFigures, SourceFigures, TaskFigures
from opencode_runs.tables import table, task_label


def rate_text(figures: RateFigures, limit: int | None) -> str:
    """The answer of `rate`: a line per source, then the tasks, hardest first, at most `limit` of them."""
    parts = [_source_table(figures)]
    if "*" in parts[0]:
        parts.append("* of the tasks with at least k attempts")
    for source in figures.sources:
        if source.causes:
            named = ", ".join(f"{cause} {count:,}" for cause, count in source.causes.items())
            parts.append(f"{source.model}: not counted as attempts: {named}")
    single = len(figures.sources) == 1
    parts += ["", _task_table(figures.sources[0], limit) if single else _side_by_side(figures.sources, limit)]
    total = len({row.key for source in figures.sources for row in source.rows})
    if limit is not None and total > limit:
        parts.append(f"… {total - limit:,} more tasks (all with --rows 0 or --json)")
    return "\n".join(parts)


def _header(ks: Sequence[int]) -> list[str]:
    """The headers of `_cells`."""
    headers = {name: [shown.header] for name, shown in SHOWN.items()}
    headers["pass_rate"] += [f"pass@{k}" for k in ks]
    return [header for found in headers.values() for header in found]


def _cells(row: TaskFigures | SourceFigures, ks: Sequence[int]) -> list[str]:
    """All figures, pass@k after the pass rate."""
    cells = {name: [_number(getattr(row, name), shown.digits)] for name, shown in SHOWN.items()}
    cells["avg_reward"] = [_reward(row)]
    for k in ks:
        found = row.pass_at.get(k)
        value = found.value if isinstance(found, PassAt) else found
        partly = isinstance(row, SourceFigures) and isinstance(found, PassAt) and found.tasks < row.tasks_rated
        cells["pass_rate"].append(_number(value, 2) + "*" * partly)
    return [cell for found in cells.values() for cell in found]


def _number(value: float | None, digits: int) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _reward(row: TaskFigures | SourceFigures) -> str:
    return _number(row.avg_reward, 2) + (f" ±{row.reward_stderr:.2f}" if row.reward_stderr is not None else "")


def _source_table(figures: RateFigures) -> str:
    ks = sorted({k for source in figures.sources for k in source.pass_at})
    names = {"n": "attempts", "pass": f"pass≥{figures.threshold:g}"}
    header = ["model", "tasks", "rated", *(names.get(name, name) for name in _header(ks))]
    rows = [
        [_source_label(source, figures.sources), f"{source.tasks:,}", f"{source.tasks_rated:,}", *_cells(source, ks)]
        for source in figures.sources
    ]
    return table(header, rows)


def _task_table(source: SourceFigures, limit: int | None) -> str:
    ks = list(source.rows[0].pass_at) if source.rows else []
    return table(["task", *_header(ks)], [[_label(row), *_cells(row, ks)] for row in source.rows[:limit]])


def _side_by_side(sources: Sequence[SourceFigures], limit: int | None) -> str:
    """One column per source: mean reward, its standard error, attempts and errors."""
    by_key = [{row.key: row for row in source.rows} for source in sources]
    labels = {row.key: _label(row) for source in sources for row in source.rows}
    rows = [[label, *(_cell(rows.get(key)) for rows in by_key)] for key, label in list(labels.items())[:limit]]
    return table(["task", *(_source_label(source, sources) for source in sources)], rows)


def _label(row: TaskFigures) -> str:
    return task_label(row.key, row.id or row.name or row.prompt)


def _source_label(source: SourceFigures, sources: Sequence[SourceFigures]) -> str:
    """The model, with the env where several envs are compared."""
    several = len({other.env for other in sources}) > 1
    return f"{source.model} @ {source.env}" if several else source.model


def _cell(row: TaskFigures | None) -> str:
    if row is None:
        return "-"
    failed = row.errors + row.unscored
    return f"{_reward(row)} (n={row.attempts}{f', {failed} err' if failed else ''})"
