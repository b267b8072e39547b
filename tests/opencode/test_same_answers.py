"""The same search gives the same text in every sandbox, also where only the first of many hits are shown."""

import asyncio

import pytest
from opencode_env.scripted_model import Reply

from tests.support.places import Confined, Place, Prime
from tests.support.prime_api import OPENCODE_IMAGE, PrimeApi
from tests.support.replies import bash, call
from tests.support.rollouts import Played, play

pytestmark = [pytest.mark.opencode, pytest.mark.podman, pytest.mark.usefixtures("sandboxes")]

FILES = (
    "for d in 3 1 2 5 4; do mkdir -p /app/many/d$d; for n in $(seq 1 40); do echo needle > /app/many/d$d/f$n.txt; "
    "done; done; mkdir /app/few; for n in 9 3 5 1; do echo pin > /app/few/$n.txt; done"
)
MANY = sorted((f"/app/many/d{d}/f{n}.txt" for d in range(1, 6) for n in range(1, 41)), key=lambda path: path.split("/"))
FEW = [f"/app/few/{n}.txt" for n in (1, 3, 5, 9)]
SEARCHES = [
    call("glob", pattern="many/**/*.txt"),
    call("grep", pattern="needle"),
    call("glob", pattern="few/*.txt"),
    call("grep", pattern="pin", include="*.txt"),
    bash("rg --no-filename --sortr=path -e pin -e nothing few; rg --version | head -c 7"),
]


def files(text: str) -> list[str]:
    """The paths of a result, in its order."""
    return [line.removesuffix(":") for line in text.splitlines() if line.startswith("/app/")]


async def test_the_same_searches_give_one_text_in_four_sandboxes(container: Place, prime_api: PrimeApi) -> None:
    async def search(place: Place) -> Played:
        return await play(place, [*SEARCHES, Reply(text="Done.")], before=FILES)

    places = (Confined(), Confined(), container, Prime(OPENCODE_IMAGE))
    texts = {tuple(played.tool_results()) for played in await asyncio.gather(*map(search, places))}
    assert len(texts) == 1
    many_files, many_lines, few_files, few_lines, own = texts.pop()
    assert files(many_files) == files(many_lines) == MANY[:100]
    assert files(few_files) == files(few_lines) == FEW
    assert own == "pin\n" * 4 + "ripgrep"
