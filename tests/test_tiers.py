"""What a test starts without asking for it fails, in every tier, so that no tier can drift."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import tiers
from tests.support.machine import slowdown


@pytest.mark.parametrize(
    ("argv", "fixture"),
    [
        (["bwrap", "--version"], "sandboxes"),
        (["/usr/bin/env", "podman", "--version"], "sandboxes"),
        ([sys.executable, "-c", ""], "programs"),
        ([str(Path(sys.executable).with_name("vf-eval")), "--help"], "sandboxes"),
        ([str(Path(sys.executable).with_name("opencode-openenv")), "--help"], "programs"),
    ],
)
def test_a_program_that_was_not_asked_for_is_refused_and_its_fixture_named(argv: Sequence[str], fixture: str) -> None:
    told = f"let it ask for the fixture `{fixture}`"
    with pytest.raises(RuntimeError, match=told):
        subprocess.run(argv, check=False)
    assert told in tiers._watched.broken
    tiers._watched.broken = ""


def test_a_refusal_that_the_test_swallows_fails_it_all_the_same() -> None:
    body = tiers.pytest_runtest_call()
    next(body)
    tiers._watched.broken = "it started something"
    with pytest.raises(pytest.fail.Exception, match="it started something"):
        next(body)
    tiers._watched.broken = ""


def test_a_python_that_imports_nothing_may_be_started() -> None:
    assert slowdown() >= 1.0


@pytest.mark.usefixtures("programs")
def test_who_asks_may_start_it_and_is_not_quick(request: pytest.FixtureRequest) -> None:
    assert subprocess.run([sys.executable, "-c", ""], check=False).returncode == 0
    assert not tiers.is_quick(request.node)
