"""The light program that sends a failed call again."""

from collections.abc import Iterator

import pytest

from tests.support.light_opencode import light_opencode_in_place


@pytest.fixture
def light_agent(sandboxes: None) -> Iterator[None]:
    """The light program in OpenCode's place, which sends a failed call twice."""
    with light_opencode_in_place(sends=2):
        yield
