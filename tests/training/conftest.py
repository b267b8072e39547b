"""One tokenizer for all."""

from pathlib import Path

import pytest

from tests.support.families import save_tokenizer


@pytest.fixture(scope="session")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directory of a tokenizer."""
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))
