"""Where the bare binary finishes with an endpoint, ours does; where it fails, ours names the cause and asks once.

`docs/reference/endpoints.md` has what came of each row; `WHOLE=1` plays all of them against both, and
`python -m tests.endpoints.page` writes the page's table anew.
"""

import asyncio
import re

import pytest

from tests.endpoints.behaviours import ROWS, Row
from tests.endpoints.page import recorded
from tests.endpoints.playing import Played, play_bare, play_ours
from tests.endpoints.server import Endpoint
from tests.support.sizes import WHOLE
from tests.support.user_home import UserHome

pytestmark = [pytest.mark.opencode, pytest.mark.slow]

SHORT = frozenset(
    [
        "sound",
        "no-usage",
        "created-text",
        "no-done",
        "no-finish",
        "comments",
        "choices-null",
        "parallel-missing",
        "parallel-zero",
        "name-each",
        "arguments-object",
        "finish-stop",
        "reasoning-details",
        "whole-completion",
        "error-200",
        "html-200",
        "key-401",
        "no-tools-400",
        "max-completion-tokens",
        "rate-limit-once",
        "cut-once",
        "window-llama-cpp",
        "window-tgi",
        "window-first",
    ]
)
PLAYED = [row for row in ROWS if WHOLE or row.name in SHORT]
BARE = [row for row in ROWS if WHOLE or row.name in ("sound", "parallel-zero", "key-401")]


@pytest.fixture(scope="module")
def played(shared_home: UserHome) -> dict[str, dict[str, Played]]:
    """What came of each row, of the bare binary and of ours."""

    async def play() -> dict[str, dict[str, Played]]:
        async with Endpoint({row.name: row.behaviour for row in ROWS}) as endpoint:
            bare = await play_bare(endpoint, BARE, shared_home.root / "bare")
            return {"bare": bare, "ours": await play_ours(endpoint, PLAYED, shared_home)}

    return asyncio.run(play())


@pytest.mark.parametrize("row", PLAYED, ids=lambda row: row.name)
def test_ours_finishes_where_the_bare_binary_does_and_else_says_why(
    played: dict[str, dict[str, Played]], row: Row
) -> None:
    ours, page = played["ours"][row.name], recorded()[row.name]
    if page.bare_finishes and not row.stricter:
        assert ours.finished, ours
    if not ours.finished:
        assert re.search(row.says, ours.says, re.DOTALL), ours
        assert ours.scored == row.scored, ours
    assert ours.finished == page.ours_finishes, ours


@pytest.mark.parametrize("row", BARE, ids=lambda row: row.name)
def test_the_page_says_what_the_bare_binary_does(played: dict[str, dict[str, Played]], row: Row) -> None:
    assert played["bare"][row.name].finished == recorded()[row.name].bare_finishes, played["bare"][row.name]


def test_the_page_has_each_row_and_ours_finishes_in_all_that_the_bare_binary_does() -> None:
    page = recorded()
    assert [*page] == [row.name for row in ROWS]
    stricter = {row.name for row in ROWS if row.stricter}
    assert {name for name, one in page.items() if one.bare_finishes and not one.ours_finishes} <= stricter


def test_a_failure_at_the_first_answer_is_not_asked_for_again(played: dict[str, dict[str, Played]]) -> None:
    once = {row.name for row in PLAYED if not row.slow and not row.scored}
    asked = {name: one.requests for name, one in played["ours"].items() if name in once and not one.finished}
    assert {name: count for name, count in asked.items() if count > 2} == {}
