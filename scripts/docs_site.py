"""The hooks of `mkdocs.yml`: pages that stand outside of `docs/`, links between all of them, and mermaid's program.

The README, the packages' pages and the like are read where they are, on GitHub as in the site. mermaid comes through
npm once per machine, by version and checksum, so that a page of the site fetches nothing from anywhere.
"""

import hashlib
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from opencode_env.agents.named.npm import run_npm
from opencode_rubrics.cache import cache_root, make_once

ROOT = Path(__file__).resolve().parent.parent
MERMAID = "11.12.0"
MERMAID_SHA256 = "07e37dfa97b337ccc85365d57eddf99b9706f09db3b59b260d0333b23b343c4b"
PROGRAM = "mermaid.min.js"
OUTSIDE = {
    ROOT / f"{name.upper()}.md": f"project/{name}.md" for name in ("readme", "contributing", "security", "changelog")
} | {
    path: f"packages/{'opencode-rubrics' if path.parent.name == 'rubrics' else path.parent.name.replace('_', '-')}.md"
    for path in (
        ROOT / "rubrics" / "README.md",
        *ROOT.glob("environments/*/README.md"),
        *ROOT.glob("packages/*/README.md"),
    )
}
"""Pages outside of `docs/`, and where they stand in the site."""


def mermaid() -> Path:
    """mermaid's program, downloaded when this machine has not got it.

    Raises:
        ValueError: npm brought another one.
    """

    def fill(directory: Path) -> None:
        with tempfile.TemporaryDirectory() as name:
            run_npm(["pack", "--silent", f"mermaid@{MERMAID}"], Path(name), f"mermaid@{MERMAID}")
            shutil.unpack_archive(next(Path(name).glob("*.tgz")), name, filter="data")
            program = (Path(name) / "package" / "dist" / PROGRAM).read_bytes()
        if hashlib.sha256(program).hexdigest() != MERMAID_SHA256:
            raise ValueError(f"mermaid {MERMAID} is not the one that MERMAID_SHA256 of {__file__} names")
        (directory / PROGRAM).write_bytes(program)

    final = cache_root() / f"mermaid-{MERMAID}"
    make_once(final, PROGRAM, fill)
    return final / PROGRAM


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add what stands outside of `docs/`."""
    for path, place in OUTSIDE.items():
        files.append(File.generated(config, place, content=path.read_text()))
    files.append(File.generated(config, f"assets/{PROGRAM}", abs_src_path=str(mermaid())))
    return files


def on_page_markdown(markdown: str, *, page: Any, config: Mapping[str, Any], files: Files) -> str:
    """Links as the site has them; what is not a page of it stays as text."""
    places = {place: path for path, place in OUTSIDE.items()}
    source = places.get(page.file.src_uri, ROOT / "docs" / page.file.src_uri)

    def link(found: re.Match[str]) -> str:
        text, target = found.groups()
        path, _, anchor = target.partition("#")
        if not path or "://" in path:
            return found[0]
        file = Path(os.path.normpath(source.parent / path))
        if file.is_relative_to(ROOT / "docs"):
            place = str(file.relative_to(ROOT / "docs"))
        elif file in OUTSIDE:
            place = OUTSIDE[file]
        else:
            return text.removeprefix("!").strip("[]")
        relative = os.path.relpath(place, Path(page.file.src_uri).parent)
        return f"{text}({relative}{f'#{anchor}' if anchor else ''})"

    pieces = re.split(r"(^ *```.*?^ *```$)", markdown, flags=re.MULTILINE | re.DOTALL)
    pieces[::2] = [re.sub(r"(!?\[[^\]]*\])\(([^)\s]+)\)", link, piece) for piece in pieces[::2]]
    return "".join(pieces)
