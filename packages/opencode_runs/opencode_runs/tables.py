"""Aligned tables for a terminal, no colours, no wrapping, and the labels that fit into them."""

import textwrap
from collections.abc import Sequence

LABEL_WIDTH = 40
HASH_LENGTH = 64
SHORT_HASH = 12


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return "\n".join(
        "  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]).rstrip()
        for line in (header, *rows)
    )


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
