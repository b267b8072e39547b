"""`--quick`: the tests that start neither a sandbox nor an agent, as told by the fixtures that they ask for.

Invariant: in the quick tier nothing starts `bwrap`, `podman` or `vf-eval`. A test that tries fails, and is to ask for
one of `STARTS`, itself or through another fixture.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Generator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

STARTS = frozenset({"sandboxes", "podman_image", "prime_server", "newest_python"})
"""Fixtures of `tests/conftest.py` that stand for a sandbox, an agent or another long program."""
PROGRAMS = frozenset({"bwrap", "podman", "vf-eval"})

_quick_test: str | None = None
_watching = False


def programs_of(arguments: tuple[Any, ...]) -> set[str]:
    """Which of `PROGRAMS` the arguments of an audit event `subprocess.Popen` start."""
    argv = arguments[1]
    words = argv[:2] if isinstance(argv, Sequence) and not isinstance(argv, str | bytes) else []
    return {Path(os.fsdecode(word)).name for word in words} & PROGRAMS


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _quick_test is not None and (programs := programs_of(arguments)):
        raise RuntimeError(f"{_quick_test} starts {', '.join(programs)}: let it ask for the fixture `sandboxes`")


def is_quick(item: pytest.Item) -> bool:
    """Whether a test asks for none of `STARTS`."""
    return not STARTS.intersection(getattr(item, "fixturenames", ()))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of the tier."""
    parser.addoption("--quick", action="store_true", help="only tests that start neither a sandbox nor an agent")


def pytest_configure(config: pytest.Config) -> None:
    """Where only quick tests run, what their programs start fails too."""
    if config.getoption("--quick"):
        directory = Path(tempfile.mkdtemp(prefix="quick-"))
        config.add_cleanup(partial(shutil.rmtree, directory, ignore_errors=True))
        for name in ("bwrap", "podman"):
            program = directory / name
            program.write_text(f'#!/bin/sh\necho "a quick test starts {name}" >&2\nexit 97\n')
            program.chmod(0o755)
        os.environ["PATH"] = f"{directory}{os.pathsep}{os.environ['PATH']}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not quick."""
    if not config.getoption("--quick"):
        return
    config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
    items[:] = [item for item in items if is_quick(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Refuse what a quick test starts."""
    global _quick_test, _watching
    if not item.config.getoption("--quick"):
        return (yield)
    if not _watching:
        _watching = True
        sys.addaudithook(_refuse)
    _quick_test = item.nodeid
    try:
        return (yield)
    finally:
        _quick_test = None
