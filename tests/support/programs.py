"""Programs of this Python that tests start, forked by one process of the whole run, which has imported verifiers."""

import os
import shlex
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import pytest
from opencode_env.conformance.user_home import UserHome

from tests.support.forked import Forked, address
from tests.support.forked_servers import fork_servers


def pytest_configure(config: pytest.Config) -> None:
    """Start that process where all workers and their programs are started from; it imports with the first program.

    pytest's first process imports readline, which writes the size of a terminal into the environment of the workers.
    With variables that this process has not, or that Python reads, each of their programs would be executed.
    """
    for name in ("LINES", "COLUMNS", "PYTHONUNBUFFERED"):
        os.environ.pop(name, None)
    fork_servers(address())
    UserHome.start = Forked
    sys.path[:] = IMPORT_PATH or sys.path


IMPORT_PATH: list[str] = []
"""Of a worker that was forked: what the tests added to the path as they were imported, too, which xdist takes away."""


def own_variables(**more: str) -> dict[str, str]:
    """Those of this process, without what a Python reads before it can be forked."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")} | more


@contextmanager
def running(*argv: str) -> Iterator[tuple[Forked, IO[str]]]:
    """A program of this Python by its file and arguments, and what it prints; killed on exit should it still run."""
    reads, writes = os.pipe()
    with open(reads) as said:
        with open(writes, "wb") as output, open(os.dup(2), "wb") as error:
            program = Forked([sys.executable, *argv], Path.cwd(), own_variables(), error, output)
        try:
            yield program, said
        finally:
            program.kill()
            program.wait()


def finished(
    argv: Sequence[str], directory: Path, environment: Mapping[str, str], timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run a program of this Python to its end, as `subprocess.run` does."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as error:
        program = Forked(argv, directory, environment, error, output)
        try:
            code = program.wait(timeout)
        finally:
            program.kill()
        said = []
        for stream in (output, error):
            stream.seek(0)
            said.append(stream.read().decode())
    return subprocess.CompletedProcess(argv, code, *said)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    """Fork the workers too, of one process that has imported the tests: the imports of each would take seconds."""
    support, place = Path(__file__).parent, f"{address()}-workers"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(place)
    listener.listen()
    with open(listener.detach(), "wb", buffering=0) as output, open(os.dup(2), "wb") as error:
        argv = [sys.executable, str(support / "worker_template.py"), *config.args]
        template = Forked(argv, Path.cwd(), own_variables(), error, output)

    def end() -> None:
        template.kill()
        template.wait()

    config.add_cleanup(end)
    client = [sys.executable, "-I", "-S", str(support / "forked_worker.py")]
    for spec in specs:
        if spec.popen and not spec.python:
            spec.python = shlex.join([*client, place, sys.executable])
