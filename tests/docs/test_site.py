"""The site of `make docs`: strict, and whole without a network."""

import os
import re
import sys
from pathlib import Path

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, blocks_of
from tests.support.browser import Browser
from tests.support.programs import finished

MKDOCS = Path(sys.executable).with_name("mkdocs")


def build(directory: Path, configuration: Path) -> tuple[int, str]:
    """Build a site; the exit code, and what was said but for its progress."""
    argv = [str(MKDOCS), "build", "--config-file", str(configuration), "--site-dir", str(directory)]
    done = finished(argv, ROOT, os.environ | {"NO_MKDOCS_2_WARNING": "1", "NO_COLOR": "1"})
    return done.returncode, "".join(re.findall(r"^(?!INFO).*\n", done.stdout + done.stderr, re.MULTILINE))


@pytest.fixture(scope="module")
def site(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    directory = tmp_path_factory.mktemp("site")
    code, said = build(directory, ROOT / "mkdocs.yml")
    assert (code, said) == (0, "")
    return directory


def test_no_page_names_something_to_fetch_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(PAGES)
    fetched = r"<(?:script|link|img|iframe|source)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>"
    named = {found for page in pages for found in re.findall(fetched, page.read_text())}
    assert named == set()
    styles = {sheet.name: sheet.read_text() for sheet in site.rglob("*.css")}
    assert styles
    assert [name for name, text in styles.items() if re.search(r"(?:url\(|@import )[\"']?(?:https?:)?//", text)] == []


def test_diagrams_are_drawn_and_nothing_is_asked_of_a_network(site: Path, browser: Browser) -> None:
    for page, source in (
        ("explanation/overview.html", "docs/explanation/overview.md"),
        ("project/readme.html", "README.md"),
    ):
        diagrams = sum(block.language == "mermaid" for block in blocks_of(ROOT / source))
        browser.call("Page.navigate", url=(site / page).as_uri())
        browser.until(f"document.querySelectorAll('div.mermaid').length === {diagrams}")
        assert browser.run("document.querySelectorAll('pre.mermaid').length") == 0
    assert [address for address in browser.asked if not address.startswith(("file:", "data:", "blob:"))] == []


class Loader(yaml.SafeLoader):
    """Reads `mkdocs.yml`, whose names of Python's are not followed."""


Loader.add_multi_constructor("tag:yaml.org,2002:python/name:", lambda loader, suffix, node: suffix)


def test_each_mistake_ends_the_build(programs: None, tmp_path: Path) -> None:
    configuration = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader)
    kept = {name: configuration[name] for name in ("site_name", "strict", "validation", "use_directory_urls")}
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text("# Page\n\n[nowhere](gone.md), [no heading](index.md#gone)\n")
    (tmp_path / "docs" / "not-listed.md").write_text("# Other\n")
    file = tmp_path / "mkdocs.yml"
    file.write_text(yaml.safe_dump(kept | {"plugins": [], "nav": ["index.md"], "theme": "mkdocs"}))
    code, said = build(tmp_path / "site", file)
    assert code == 1
    assert all(mistake in said for mistake in ("'gone.md'", "'index.md#gone'", "not-listed.md")), said
    assert "3 warnings in strict mode" in said
