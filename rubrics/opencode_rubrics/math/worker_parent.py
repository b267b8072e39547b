"""The host's side of the process that forks the math workers (`verdict_programs.on_host`), and of each fork.

Invariant: one request is under way on the control socket at a time. A parent that is lost stays lost: its workers die
with it, and its owner starts another.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from rollout_sandbox.toolbox.scoring import ScoringError

from opencode_rubrics.math.verdict_programs.on_host import LENGTH

_START_TIMEOUT = 60.0
_LIBRARIES = ("mathverdict", "math_verify", "latex2sympy2_extended", "sympy", "mpmath", "antlr4")


class WorkerGone(Exception):
    """The other end of a socket closed."""


def import_roots() -> list[str]:
    """The directories that a worker needs on its import path: of its program, and those of mathverdict and math-verify.
    A library that is not installed is a `ScoringError`."""
    roots = [str(Path(__file__).parent)]
    for name in _LIBRARIES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            raise ScoringError(f"{name} is not installed: install opencode-rubrics with its dependencies")
        roots.append(str(Path(spec.origin).parent.parent))
    return list(dict.fromkeys(roots))


class WorkerParent:
    """The running parent process; made by `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", control: socket.socket) -> None:
        self._process = process
        self._control = control
        self._talking = asyncio.Lock()

    @classmethod
    async def start(cls) -> "WorkerParent":
        """Start a parent on this thread (the kernel ends it with the thread that started it) and wait until it is up; a
        `ScoringError` if it does not come up."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        start = f"from verdict_programs.on_host import main; main({theirs.fileno()}, {os.getpid()})"
        with theirs:
            process = subprocess.Popen(  # noqa: ASYNC220 - a thread that ends would take the process along
                [sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {import_roots()!r}; {start}"],
                env={"PATH": os.defpath, "LC_ALL": "C.UTF-8"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        parent = cls(process, ours)
        try:
            await parent._reply()
        except WorkerGone:
            parent.close()
            raise ScoringError(
                f"the math workers did not start (exit code {process.returncode}): what they printed is above; "
                "reinstall opencode-rubrics"
            ) from None
        except BaseException:
            parent.close()
            raise
        return parent

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """Whether it is lost."""
        return self._process.poll() is not None

    async def fork(self) -> "Worker":
        """A new worker; `WorkerGone` if the parent is lost."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        try:
            with theirs:
                pid = await self._request(b"fork", theirs)
        except BaseException:
            ours.close()
            raise
        return Worker(pid, self, ours)

    async def end(self, pid: int) -> int:
        """Exit code of a worker, killed if it still runs; -9 if the parent, and so the worker, is lost."""
        try:
            return await self._request(f"end {pid}".encode())
        except WorkerGone:
            return -signal.SIGKILL

    async def _request(self, message: bytes, passed: socket.socket | None = None) -> int:
        async with self._talking:
            try:
                socket.send_fds(self._control, [message], [] if passed is None else [passed.fileno()])
            except OSError as error:
                raise WorkerGone from error
            return int(await self._reply())

    async def _reply(self) -> bytes:
        try:
            async with asyncio.timeout(_START_TIMEOUT):
                data = await asyncio.get_running_loop().sock_recv(self._control, 64)
        except (TimeoutError, OSError) as error:
            self._control.close()
            raise WorkerGone from error
        if not data:
            self._control.close()
            raise WorkerGone
        return data

    def close(self) -> None:
        """Kill the parent, and with it all its workers; idempotent, blocks for some milliseconds."""
        if not self.ended:
            self._process.kill()
            self._process.wait()
        # Whoever waits for a reply sees the end of the socket; closing it here would leave them waiting.
        if not self._talking.locked():
            self._control.close()


@dataclass(eq=False)
class Worker:
    """One fork and the host's end of its socket."""

    pid: int
    parent: WorkerParent
    connection: socket.socket
    answered: int = 0

    async def ask(self, request: bytes) -> bytes:
        """The reply to one request; `WorkerGone` if the worker ended before it replied."""
        try:
            await asyncio.get_running_loop().sock_sendall(self.connection, LENGTH.pack(len(request)) + request)
            return await self._read(LENGTH.unpack(await self._read(LENGTH.size))[0])
        except ConnectionError as error:
            raise WorkerGone from error

    async def _read(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            chunk = await asyncio.get_running_loop().sock_recv(self.connection, size - len(data))
            if not chunk:
                raise WorkerGone
            data += chunk
        return data

    async def end(self) -> int:
        """End the worker if it still runs; its exit code."""
        self.connection.close()
        return await self.parent.end(self.pid)
