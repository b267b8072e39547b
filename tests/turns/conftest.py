"""Fixtures of what happens outside OpenCode."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from tests.support.light_opencode import light_opencode_in_place
from tests.support.sizes import WHOLE


@pytest.fixture
def light_but_in_whole(sandboxes: None) -> Iterator[None]:
    """The light program in OpenCode's place; in `make test-whole` OpenCode itself."""
    with nullcontext() if WHOLE else light_opencode_in_place():
        yield


@pytest.fixture(scope="module")
def module_light_but_in_whole(sandboxes: None) -> Iterator[None]:
    """The same for a whole module."""
    with nullcontext() if WHOLE else light_opencode_in_place():
        yield


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the module."""
    return tmp_path_factory.mktemp("turns")
