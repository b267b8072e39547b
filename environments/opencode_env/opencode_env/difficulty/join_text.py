"""The answer of `join` as text."""

from opencode_env.difficulty.join import JoinFigures
from opencode_env.difficulty.matching import Leftovers


def join_text(figures: JoinFigures) -> str:
    """What was written and how it matched, for a terminal."""
    matched = figures.matched_by_key + figures.matched_by_id
    return "\n".join(
        [
            f"{figures.output}: {figures.rows:,} rows, {figures.rated_rows:,} of them rated",
            f"matched: {matched:,} rows ({figures.matched_by_key:,} by key, {figures.matched_by_id:,} by id) "
            f"with {figures.tasks - figures.unmatched_tasks.count:,} of {figures.tasks:,} tasks",
            f"columns: {', '.join(figures.columns)}",
        ]
    )


def join_warnings(figures: JoinFigures) -> list[str]:
    """What a reader of the output should know, a line each."""
    lines = list(figures.notes)
    lines += _left(figures.unmatched_rows, "rows of the dataset have no task in the runs; their figures are null")
    lines += _left(figures.unmatched_tasks, "tasks of the runs have no row in the dataset; their figures are lost")
    lines += _left(figures.changed_identity, "rows are another task when read back from the output")
    if figures.tasks_matched_twice:
        lines.append(f"{figures.tasks_matched_twice:,} tasks match several rows; each of these has the task's figures")
    return lines


def _left(left: Leftovers, what: str) -> list[str]:
    if not left.count:
        return []
    more = ", …" if left.count > len(left.first) else ""
    return [f"{left.count:,} {what}: {', '.join(left.first)}{more}" if left.first else f"{left.count:,} {what}"]
