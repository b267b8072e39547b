"""Programs of a Python, forked by a process of it that has imported what verifiers needs (`fork_server`)."""

import asyncio
import atexit
import contextlib
import json
import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO

from tests.support import fork_server

ADDRESS_VARIABLE = "OPENCODE_ENV_FORK_SERVER"
"""Where a server listens that this process need not start."""
_LONGEST = 70
"""Characters of the temporary directory; below a longer one a socket cannot be."""


class Forked:
    """A started program, as `subprocess.Popen` shows one.

    Args:
        argv: a script that stands beside its Python, as `vf-eval` does, or `[python, "-m", module, …]` or `[python,
            "program.py", …]`; anything else is executed.
        environment: its variables, all of them.
        output: its standard output; None for nowhere.
        server: the address of what forks it, and then it ends with this process; None: the server of its Python.
    """

    cpu_seconds = 0.0
    """Of all programs that were started here and have ended."""

    def __init__(
        self,
        argv: Sequence[str],
        directory: Path,
        environment: Mapping[str, str],
        error: IO[bytes],
        output: IO[bytes] | None = None,
        *,
        server: str | None = None,
    ) -> None:
        sys.audit("subprocess.Popen", argv[0], list(argv), str(directory), dict(environment))
        self.returncode: int | None = None
        self._told = b""
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(server or address(_interpreter(argv[0])))
        asked: dict[str, object] = {"argv": list(argv), "directory": str(directory), "environment": dict(environment)}
        asked["tied"] = server is not None
        with open(os.devnull, "r+b", buffering=0) as nothing:
            streams = [nothing, output or nothing, error]
            socket.send_fds(self._connection, [b" "], [stream.fileno() for stream in streams])
        self._connection.sendall(json.dumps(asked).encode())
        self._connection.shutdown(socket.SHUT_WR)
        self.pid = int(self._next()["pid"])
        self._connection.setblocking(False)

    def _next(self) -> dict[str, float]:
        """The next line that the server tells.

        Raises:
            BlockingIOError: there is none yet.
            ChildProcessError: the server has ended.
        """
        while b"\n" not in self._told:
            if not (piece := self._connection.recv(1 << 10)):
                raise ChildProcessError("the process that forks programs has ended")
            self._told += piece
        line, _, self._told = self._told.partition(b"\n")
        return dict(json.loads(line))

    def poll(self) -> int | None:
        """The exit code; None while the program runs."""
        if self.returncode is None:
            with contextlib.suppress(BlockingIOError):
                told = self._next()
                self.returncode = int(told["code"])
                Forked.cpu_seconds += told["cpu"]
                self._connection.close()
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            TimeoutExpired: it has not ended after so many seconds.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            select.select([self._connection], [], [], left)
        return code

    async def ended(self) -> int:
        """Wait for its end in an event loop."""
        while (code := self.poll()) is None:
            await asyncio.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, should it still run."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it."""
        self.send_signal(signal.SIGKILL)


def _interpreter(program: str) -> str:
    """The Python that runs a program; this one for what is not a program of any."""
    if Path(program).name.startswith("python"):
        return program
    with contextlib.suppress(OSError), open(program, "rb") as script:
        found = re.fullmatch(rb"#!(/\S+/python\S*)\s*", script.readline())
        return os.fsdecode(found[1]) if found else sys.executable
    return sys.executable


def address(python: str = sys.executable) -> str:
    """Where the server of a Python listens: started with the first call, and ended with this process. That of this
    Python is there for the programs of this process as well."""
    with _starting:
        if python != sys.executable:
            return _started(python)
        if ADDRESS_VARIABLE not in os.environ:
            os.environ[ADDRESS_VARIABLE] = _started(python)
        return os.environ[ADDRESS_VARIABLE]


_starting = threading.Lock()


@cache
def _started(python: str) -> str:
    # A socket's path has at most 107 bytes.
    directory = tempfile.mkdtemp(prefix="fork-server-", dir="/tmp" if len(tempfile.gettempdir()) > _LONGEST else None)
    place = os.path.join(directory, "socket")
    room = " " * fork_server.ROOM
    argv = [python, fork_server.__file__, place, room]
    # An own session: an interrupt at the terminal is for whoever started it.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    variables |= {"OPENBLAS_NUM_THREADS": "1", "ROOM": room}  # a process with threads cannot be forked
    process = subprocess.Popen(argv, env=variables, stdin=subprocess.PIPE, start_new_session=True)
    atexit.register(_end, process, directory)
    deadline = time.monotonic() + 60
    while not os.path.exists(place) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return place


def _end(process: "subprocess.Popen[bytes]", directory: str) -> None:
    assert process.stdin is not None
    process.stdin.close()
    process.wait()
    shutil.rmtree(directory, ignore_errors=True)
