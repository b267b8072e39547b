"""What each engine answered: kept in `answers.json`, and as a table on a page of the documents."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"
PAGE = HERE.parent.parent / "docs" / "reference" / "engines.md"
_TABLE = re.compile(r"(?m)^\| question \|.*\n(?:\|.*\n)*")

Answers = Mapping[str, Mapping[str, str]]
"""By question and engine: yes, no with the reason, or not tried with the reason."""


def answers() -> Answers:
    """What is known."""
    found: Answers = json.loads(ANSWERS.read_text())
    return found


def keep(engine: str, new: Mapping[str, str]) -> None:
    """Keep what an engine answered, in place of what it answered before, and write the page anew."""
    known = {question: dict(cells) for question, cells in answers().items()} if ANSWERS.exists() else {}
    for question, cell in new.items():
        known.setdefault(question, {})[engine] = cell
    ANSWERS.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n")
    PAGE.write_text(_TABLE.sub(lambda _: table(known), PAGE.read_text()))


def table(known: Answers) -> str:
    """The page's table: a row for each question, a column for each engine."""
    engines = sorted({engine for cells in known.values() for engine in cells})
    rows = [["question", *engines], ["---"] * (len(engines) + 1)]
    rows += [[question, *(cells.get(engine, "not tried") for engine in engines)] for question, cells in known.items()]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def on_page() -> str:
    """The table as the page has it."""
    found = _TABLE.search(PAGE.read_text())
    return found[0] if found else ""
