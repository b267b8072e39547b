"""Tests of the learning example; without its extra `learn` they are skipped."""

import pytest

pytest.importorskip("torch", reason="needs the extra learn: make test-learn", exc_type=ImportError)
