"""The table of `docs/reference/endpoints.md`; `python -m tests.endpoints.page` plays every row and writes it."""

import asyncio
import re
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tests.endpoints.behaviours import ROWS
from tests.endpoints.playing import Played, play_bare, play_ours
from tests.endpoints.server import Endpoint
from tests.support.user_home import UserHome

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "endpoints.md"
HEAD = "| row | what the endpoint does | bare OpenCode | ours |\n| --- | --- | --- | --- |\n"
FINISHES = "finishes"
_SHOWN = 90


@dataclass(frozen=True)
class Recorded:
    """A row of the page."""

    bare_finishes: bool
    ours_finishes: bool


@cache
def recorded() -> dict[str, Recorded]:
    """The page's rows by name."""
    rows = re.findall(r"^\| `([\w-]+)` \| .* \| (.*?) \| (.*?) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: Recorded(bare == FINISHES, ours == FINISHES) for name, bare, ours in rows}


def _cell(played: Played) -> str:
    if played.finished:
        return FINISHES
    said = " ".join(re.sub(r"\\+[nt]?", " ", played.says).split()).replace("|", "/").replace("<", "(").replace(">", ")")
    return f"{said[:_SHOWN]}{'…' if len(said) > _SHOWN else ''}"


async def _play(root: Path) -> str:
    async with Endpoint({row.name: row.behaviour for row in ROWS}) as endpoint:
        bare = await play_bare(endpoint, ROWS, root / "bare")
        ours = await play_ours(endpoint, ROWS, UserHome(root / "ours"))
    cells = [(row.name, row.text, _cell(bare[row.name]), _cell(ours[row.name])) for row in ROWS]
    return HEAD + "".join(f"| `{name}` | {text} | {one} | {other} |\n" for name, text, one, other in cells)


def main() -> None:
    with tempfile.TemporaryDirectory() as root:
        table = asyncio.run(_play(Path(root)))
    text = re.sub(rf"{re.escape(HEAD)}(?:\|.*\n)*", lambda _: table, PAGE.read_text())
    PAGE.write_text(text)
    sys.stdout.write(table)


if __name__ == "__main__":
    main()
