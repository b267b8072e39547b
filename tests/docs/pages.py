"""The pages of the documents, and what stands in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
GENERATED = (
    "docs/reference/options.md",
    "docs/reference/commands.md",
    "docs/reference/outcomes.md",
    "docs/reference/api.md",
    "docs/reference/endpoints.md",
)
"""Pages that `scripts/make_reference.py` writes, in whole or in part."""
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*FRONT, *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE_PAGES = sorted(
    [ROOT / "rubrics" / "README.md", *ROOT.glob("environments/*/README.md"), *ROOT.glob("packages/*/README.md")]
)


@dataclass(frozen=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str
    needs: str = ""
    """What it needs that a test does not have, as the comment `<!-- needs: … -->` before it says."""
    run_by: str = ""
    """The tests that run it, as the comment `<!-- run by: … -->` before it says; empty: `test_console.py`."""

    @property
    def is_run_here(self) -> bool:
        """Whether it is a console block that `test_console.py` runs."""
        return self.language == "console" and not self.needs and not self.run_by

    def __str__(self) -> str:
        return f"{name_of(self.page)}:{self.line}"


def name_of(page: Path) -> str:
    """A page's path from the root of the checkout."""
    return str(page.relative_to(ROOT))


def blocks_of(page: Path) -> list[Block]:
    """The fenced blocks of a page, those in lists included."""
    text = page.read_text()
    fence = re.compile(
        r"(?:<!-- (?:needs: (?P<needs>[^\n]*?)|run by: (?P<run_by>[^\n]*?)) -->\n)?"
        r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$",
        re.MULTILINE | re.DOTALL,
    )
    found = [(text[: one.start("language")].count("\n") + 1, one.groupdict("")) for one in fence.finditer(text)]
    return [Block(page, line, one["language"], one["text"], one["needs"], one["run_by"]) for line, one in found]


def prose_of(page: Path) -> list[str]:
    """The sentences of a page: no code blocks, tables, headings; what is in code type counts as one word."""
    text = re.sub(r"^( *)```.*?^\1```$", "\n\n", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"<!--.*-->|^\|.*$|^#.*$|^!\[.*$", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *(?:[-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`", "code", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    paragraphs = [" ".join(part.split()) for part in re.split(r"\n\s*\n", text)]
    return [one for part in paragraphs for one in re.split(r"(?<=[.!?:])\s+(?=[A-Z(\"*c])|;\s+", part) if one]
