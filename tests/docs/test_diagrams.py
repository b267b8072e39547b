"""The diagrams of the documents name what exists, and their arrows are those of the code."""

import re

import pytest
from opencode_env.cli_agent.interception import path

from tests.docs.pages import PAGES, ROOT, Block, blocks_of
from tests.test_architecture import WORDS
from tests.test_workspace import distributions

DIAGRAMS = [block for page in PAGES for block in blocks_of(page) if block.language == "mermaid"]
OVERVIEW = [block for block in DIAGRAMS if block.page == ROOT / "docs" / "explanation" / "overview.md"]
PRODUCTS = {"OpenCode", "OpenEnv"}
"""Names with two capitals that are not a class."""


def arrows(block: Block) -> set[tuple[str, str]]:
    """From what to what the arrows lead, by the names that are shown."""
    shown = dict(re.findall(r"(\w+)\[\"?([^\]\"]+)", block.text))
    found = re.findall(r"^ *(\w+)(?:\[[^\]]*\])? --(?:[^>]*--)?> (\w+)", block.text, re.MULTILINE)
    return {(shown.get(first, first), shown.get(second, second)) for first, second in found}


def closure(edges: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """All pairs with a path from the first to the second."""
    while more := {(a, d) for a, b in edges for c, d in edges if b == c} - edges:
        edges = edges | more
    return edges


@pytest.mark.parametrize("block", DIAGRAMS, ids=str)
def test_a_class_in_a_diagram_exists(block: Block) -> None:
    names = set(re.findall(r"\b[A-Z][a-z]+[A-Z]\w*", block.text)) - PRODUCTS
    assert names <= WORDS


def test_the_arrows_between_distributions_are_their_dependencies() -> None:
    (block,) = [block for block in DIAGRAMS if "mathverdict" in block.text]
    names = {member.name for member in distributions()}
    real = {(member.name, other) for member in distributions() for other in member.dependencies & names}
    assert closure(arrows(block)) == closure(real)
    assert all(name in block.text for name in names)


def test_the_steps_of_a_model_call_are_the_lists_of_its_path() -> None:
    (block,) = [block for block in OVERVIEW if "REQUEST" in block.text]
    lists = {name for name, value in vars(path).items() if name.isupper() and isinstance(value, list | tuple)}
    named = {name for pair in arrows(block) for name in pair if name.isupper()}
    assert named == lists - {"BESIDE", "MODELS", "TOOL"}
