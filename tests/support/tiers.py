"""`--quick`: the tests that start no sandbox, no agent and no Python, as told by the fixtures that they ask for.

Invariant, in every tier: a test that asks for none of `STARTS`, itself or through another fixture, starts none of these
programs. One that tries fails, whatever it makes of the refusal, and is told what to ask for.
"""

import os
import shutil
import sys
import tempfile
import threading
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

STARTS = frozenset({"sandboxes", "podman_image", "prime_server", "newest_python", "programs"})
"""Fixtures of `tests/conftest.py` that stand for a sandbox, an agent or another long program."""
PROGRAMS = frozenset({"bwrap", "podman", "vf-eval", "opencode"})
"""What stands for a sandbox or an agent."""
_PYTHON = "python"


class _Watched:
    """The quick test that runs, and what it did against the invariant."""

    test: str | None = None
    others: frozenset[int] = frozenset()
    """Threads from before: a server that other tests have started, say."""
    broken: str = ""


_watched = _Watched()
_watching = False


def programs_of(arguments: tuple[Any, ...]) -> set[str]:
    """Which of `PROGRAMS` the arguments of an audit event `subprocess.Popen` start, or else whether it is a Python."""
    argv = arguments[1] if isinstance(arguments[1], list | tuple) else []
    words = [os.fsdecode(word) for word in argv[:3]]
    if programs := PROGRAMS.intersection(Path(word).name for word in words[:2]):
        return set(programs)
    return {_PYTHON for word in words[:1] if _is_python(Path(word)) and "-S" not in words}


def _is_python(program: Path) -> bool:
    """Whether it can import what is ours, by which time it has taken seconds; with -S it cannot."""
    return program.name.startswith(_PYTHON) or program.parent == Path(sys.executable).parent


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "subprocess.Popen" or _watched.test is None or threading.get_ident() in _watched.others:
        return
    if programs := programs_of(arguments):
        fixture = "programs" if programs == {_PYTHON} else "sandboxes"
        _watched.broken = f"{_watched.test} starts {', '.join(programs)}: let it ask for the fixture `{fixture}`"
        raise RuntimeError(_watched.broken)


def is_quick(item: pytest.Item) -> bool:
    """Whether a test asks for none of `STARTS`."""
    return not STARTS.intersection(getattr(item, "fixturenames", ()))


def pytest_addoption(parser: pytest.Parser) -> None:
    """The option of the tier."""
    parser.addoption("--quick", action="store_true", help="only tests that start no sandbox, no agent and no Python")


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


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    """Refuse what a quick test starts, from here until its body has run: later ends what others have started."""
    global _watching
    if not _watching:
        _watching = True
        sys.addaudithook(_refuse)
    _watched.test, _watched.broken = (item.nodeid if is_quick(item) else None), ""
    _watched.others = frozenset(one.ident for one in threading.enumerate() if one.ident) - {threading.get_ident()}
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """The body; a refusal that it has swallowed is told after it."""
    try:
        (yield)
    finally:
        _watched.test = None
    if _watched.broken:
        pytest.fail(_watched.broken)
