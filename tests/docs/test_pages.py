"""The documents as a reader meets them: short pages, short sentences, links that lead somewhere."""

import re
from pathlib import Path
from statistics import mean

import pytest

from tests.docs.pages import FRONT, GENERATED, PACKAGE_PAGES, PAGES, ROOT, name_of, prose_of

ALL = [*PAGES, *PACKAGE_PAGES]
WORDS = 30
AVERAGE = 18
LINES = 250


def test_the_readme_is_one_page() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.mark.parametrize("page", [page for page in ALL if name_of(page) not in GENERATED], ids=name_of)
def test_a_page_is_short_and_so_are_its_sentences(page: Path) -> None:
    assert len(page.read_text().splitlines()) <= LINES
    sentences = prose_of(page) or ["none"]
    long = [sentence for sentence in sentences if len(sentence.split()) > WORDS]
    assert long == []
    assert mean(len(sentence.split()) for sentence in sentences) < AVERAGE


def anchors(page: Path) -> set[str]:
    """What a link into a page may name behind `#`."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", ALL, ids=name_of)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\((?!https?://)([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_in_the_contents() -> None:
    index = ROOT / "docs" / "index.md"
    linked = {(index.parent / path).resolve() for path in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    assert [name_of(page) for page in PAGES if page not in {*FRONT, index, *linked}] == []


@pytest.mark.parametrize("page", ["docs/reference/options.md", "docs/reference/commands.md"])
def test_every_option_and_argument_has_a_meaning(page: str) -> None:
    assert [line for line in (ROOT / page).read_text().splitlines() if re.search(r"^\| `.*\| *\|$", line)] == []


def test_the_reference_shows_what_an_environment_sets_for_its_own_seat() -> None:
    text = (ROOT / "docs" / "reference" / "options.md").read_text()
    swe = text.partition("\n## opencode-swe\n")[2].partition("\n## ")[0]
    assert "| `max-turns` | `int or None` | `200` |" in swe
    assert "bash-only agent" not in text  # an option of verifiers' own `bash`, which none of our seats plays
