"""One tokenizer for all, and the light program that sends a failed call again."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.families import save_tokenizer
from tests.support.light_opencode import light_opencode_in_place


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tokenizer."""
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
def light_agent(sandboxes: None) -> Iterator[None]:
    """The light program in OpenCode's place, which sends a failed call twice."""
    with light_opencode_in_place(sends=2):
        yield
