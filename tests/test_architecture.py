"""The pages for whoever changes the code name files and things that exist."""

import ast
import re
from pathlib import Path

import pytest
from opencode_env.cli_agent.interception import path

from tests.test_structure import PACKAGES, ROOT, sources

PAGES = ("docs/architecture.md", "docs/reference/internals.md")
TEXT = "\n".join((ROOT / page).read_text() for page in PAGES)
NAMES = sorted(set(re.findall(r"`([^`\n]+)`", TEXT)))
_PATH = re.compile(r"[\w./-]+\.(?:py|sh|js|toml)")
_NAME = re.compile(r"[A-Za-z_][\w.]*?(?:\(.*\))?")


def _files() -> list[str]:
    shown = [path for folder in PACKAGES.values() for path in folder.rglob("*") if path.suffix in {".py", ".sh", ".js"}]
    shown += [*(ROOT / "tests").rglob("*.py"), *(ROOT / "scripts").glob("*")]
    return [f"/{path.relative_to(ROOT)}" for path in shown]


FILES = _files()
READ = (*sources().values(), ROOT / "tests" / "test_structure.py")
WORDS = {word for path in READ for word in re.findall(r"[A-Za-z_]\w*", path.read_text())}
WORDS |= {*PACKAGES, *(part for name in sources() for part in name.split("."))}


@pytest.mark.parametrize("name", NAMES)
def test_what_the_page_names_exists(name: str) -> None:
    if _PATH.fullmatch(name):
        assert any(file.endswith(f"/{name}") for file in FILES), name
    elif "/" in name:
        roots = (ROOT, *(folder.parent for folder in PACKAGES.values()), *PACKAGES.values())
        roots = (*roots, *(folder / "cli_agent" for folder in PACKAGES.values()))
        assert any((Path(root) / name).exists() for root in roots), name
    elif name.startswith(("make ", "python -m ")):
        assert name.rpartition(" ")[2] in (*sources(), *re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text()))
    elif _NAME.fullmatch(name):
        assert set(re.findall(r"[A-Za-z_]\w*", name.partition("(")[0])) <= WORDS, name


def test_the_page_names_every_step_of_a_call() -> None:
    lists = (value for name, value in vars(path).items() if name.isupper())
    assert {step.__name__ for steps in lists for step in steps} - set(NAMES) == set()


def test_the_page_names_every_program_that_runs_inside_a_sandbox() -> None:
    shipped = {
        path.name
        for folder in PACKAGES.values()
        for path in folder.rglob("programs/*")
        if path.is_file() and path.name != "__init__.py"
    }
    assert {name for name in shipped if not any(f"/{one}".endswith(f"/{name}") for one in NAMES)} == set()


def test_a_program_of_several_lines_is_a_file() -> None:
    operand = re.compile(r"\$[1-9@]|\$\{[1-9]")
    acting = ("opencode_env.scripted_model", "opencode_env.conformance")  # what an agent writes in a test
    written = [
        f"{module}:{node.lineno}"
        for module, path in sources().items()
        if not module.startswith(acting)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if "\n" in node.value.strip() and operand.search(node.value)
    ]
    assert written == []
