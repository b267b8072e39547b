"""Aligned tables for a terminal, no colours, no wrapping, and the labels that fit into them."""

import re
import textwrap
from collections.abc import Sequence

LABEL_WIDTH = 40


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in (header, *rows)
    )


def number(value: float | None, form: str, none: str = "-") -> str:
    """A number in a form of Python's (".2f"), or `none` where there is none."""
    return none if value is None else f"{value:{form}}"


def short(text: str) -> str:
    """A label that fits a column and its line; a content hash keeps its beginning."""
    text = " ".join(text.split())
    if re.fullmatch("[0-9a-f]{64}", text):
        return text[:12]
    return textwrap.shorten(text, LABEL_WIDTH, placeholder="…") if len(text) > LABEL_WIDTH else text


def task_label(key: str, called: str | None) -> str:
    """How a task is called in tables: its id, name or prompt, and its key if that is something else."""
    if not called:
        return short(key)
    return short(called) if called == key else f"{short(called)} ({short(key)})"
