"""A process that has imported what verifiers needs once, and forks for each program that is to run with it.

These imports take seconds of a processor, and whoever runs `vf-eval` many times pays them once. A program that was
forked is what it would be if it had been executed: `__main__`, arguments, import path, variables, directory, streams,
signals, exit code, name and `/proc` entries are its own, and it lives on when this process ends. Paths below `HOME`
that modules, their classes and functions keep from their import are led to the program's own. Where it has other
variables than this process of those that Python or another module read at their start, it is executed.

Run by its path, without a package around it: `fork_server.py SOCKET`. It ends with its standard input.
"""

import atexit
import builtins
import contextlib
import ctypes
import gc
import importlib
import importlib.util
import json
import multiprocessing.process
import os
import re
import runpy
import select
import selectors
import signal
import socket
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

ROOM = 1 << 16
"""Bytes of the variable and of the argument that make room for those of a forked program in `/proc`."""
MODULES = (
    *("verifiers.v1.cli.eval.main", "verifiers.v1.serve", "verifiers.v1.tasksets", "fastapi"),
    *("opencode_env.agents.opencode.env", "opencode_env.taskset", "opencode_rlm", "tests.support.forked_servers"),
)
"""What most programs import, as far as it is installed."""
_READ_AT_THE_START = re.compile(r"PYTHON(?!PATH$)|COVERAGE_")
_PR_SET_NAME = 15


@dataclass(frozen=True)
class Request:
    """What is to run, on which three streams; `connection` hears of its pid and of its end."""

    argv: list[str]
    directory: str
    environment: dict[str, str]
    streams: list[int]
    connection: socket.socket
    requester: int
    tied: bool = False
    """Whether it ends with whoever asked for it."""


@dataclass
class _Child:
    request: Request
    cpu: float = 0.0
    """Seconds of what was forked for it, which no process but this one waits for."""


class ForkServer:
    """Forks; `serve` returns in the children only, with what each is to run."""

    def __init__(self, address: str) -> None:
        self._read_on_import: dict[str, str | None] | None = None
        self._address = address
        self._home = Path(f"{address}-home")
        self._children: dict[int, _Child] = {}
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(f"{address}.new")
        self._listener.listen(128)
        os.rename(f"{address}.new", address)
        self._wake, self._wakes = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)

    def serve(self) -> Request | None:
        """Answer requests; None when nobody is left to ask."""
        with selectors.DefaultSelector() as selector:
            for waited in (self._listener, self._wake, sys.stdin.fileno()):
                selector.register(waited, selectors.EVENT_READ)
            while True:
                ready = [key.fileobj for key, _ in selector.select()]
                if self._wake in ready:
                    self._reap()
                if self._listener in ready and (request := self._accept()) and self._forked(request):
                    return request
                if sys.stdin.fileno() in ready:
                    return None

    def _accept(self) -> Request | None:
        connection, _ = self._listener.accept()
        with contextlib.suppress(OSError, ValueError):
            first, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
            told = b"".join([first, *iter(lambda: connection.recv(1 << 16), b"")])
            requester = int.from_bytes(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 4), sys.byteorder)
            return Request(**json.loads(told), streams=list(streams), connection=connection, requester=requester)
        connection.close()
        return None

    def _forked(self, request: Request) -> bool:
        """Whether this is the child."""
        if self._read_on_import is None:
            self._read_on_import = _import_all(self._home)
            if forked_servers := sys.modules.get(MODULES[-1]):
                forked_servers.fork_servers(self._address)
        executed = (
            not _is_ours(request.argv)
            or any(map(_READ_AT_THE_START.match, request.environment))
            or any(request.environment.get(name) != value for name, value in self._read_on_import.items())
        )
        pid = os.fork()
        if pid:
            self._children[pid] = _Child(request)
            for stream in request.streams:
                os.close(stream)
            _tell(request, {"pid": pid})
            return False
        self._close()
        request.connection.close()
        _become(request)
        if request.tied and not executed:
            _end_with(request.requester)
        if executed:
            os.execvpe(request.argv[0], request.argv, request.environment)
        _show(request)
        for owner, name, value in _KEPT:
            setattr(owner, name, _led(value, self._home, Path.home()))
        _KEPT.clear()
        return True

    def _close(self) -> None:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for descriptor in (self._wake, self._wakes):
            os.close(descriptor)
        self._listener.close()
        for child in self._children.values():
            child.request.connection.close()

    def _reap(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self._wake, 1 << 10)
        with contextlib.suppress(ChildProcessError):
            while (ended := os.wait4(-1, os.WNOHANG))[0]:
                pid, status, usage = ended
                child = self._children.pop(pid)
                cpu = child.cpu + usage.ru_utime + usage.ru_stime
                if parent := self._children.get(child.request.requester):
                    parent.cpu += cpu
                _tell(child.request, {"code": os.waitstatus_to_exitcode(status), "cpu": cpu})
                child.request.connection.close()


def _tell(request: Request, told: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):  # whoever asked is gone
        request.connection.sendall(json.dumps(told).encode() + b"\n")


_KEPT: list[tuple[Any, str, Any]] = []
"""What modules keep of their home from their import: owner, attribute, path or default values of parameters."""


def _import_all(home: Path) -> dict[str, str | None]:
    """Import what `MODULES` need, with a home that nothing else is below; the variables that were read meanwhile, with
    what they held."""
    names = set()
    os.environ["HOME"] = str(home)
    kind = type(os.environ)
    read = kind.__getitem__

    def noted(environment: Any, name: str) -> str:
        names.add(name)
        return read(environment, name)

    kind.__getitem__ = noted  # type: ignore[method-assign]
    sys.path.insert(0, str(Path(__file__).parents[2]))
    try:
        for module in MODULES:
            if importlib.util.find_spec(module.partition(".")[0]):
                importlib.import_module(module)
    finally:
        kind.__getitem__ = read  # type: ignore[method-assign]
        del sys.path[0]
    for each in list(sys.modules.values()):
        classes = [one for one in vars(each).values() if isinstance(one, type) and one.__module__ == each.__name__]
        for owner in (each, *classes):
            _KEPT.extend(_kept_of(owner, home))
    gc.collect()
    gc.freeze()  # a collection in a child would copy all of it
    return {name: os.environ.get(name) for name in names - {"HOME"}}


def _kept_of(owner: Any, home: Path) -> Iterator[tuple[Any, str, Any]]:
    for name, value in list(vars(owner).items()):
        function = value.__func__ if isinstance(value, staticmethod | classmethod) else value
        if isinstance(function, types.FunctionType):
            if _led(function.__defaults__, home, home.parent) != function.__defaults__:
                yield function, "__defaults__", function.__defaults__
        elif isinstance(value, Path | str) and str(value).startswith(f"{home}/"):
            yield owner, name, value


def _led(value: Any, home: Path, other: Path) -> Any:
    """A path below a home, or several values, as they are below another home; anything else as it is."""
    if isinstance(value, tuple):
        return tuple(_led(one, home, other) for one in value)
    if isinstance(value, Path | str) and str(value).startswith(f"{home}/"):
        return type(value)(f"{other}{str(value).removeprefix(str(home))}")
    return value


def _is_ours(argv: list[str]) -> bool:
    """Whether a program runs with this Python: a module, or a script of it."""
    if argv[0] == sys.executable:
        return argv[1] == "-m" or argv[1].endswith(".py")
    script = Path(argv[0])
    beside = script.parent == Path(sys.executable).parent and script.is_file()
    return beside and script.read_bytes().startswith(f"#!{sys.executable}\n".encode())


def _become(request: Request) -> None:
    """Take on what a process is given at its start."""
    os.setsid()
    for number, stream in enumerate(request.streams):
        os.dup2(stream, number)
        os.close(stream)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(request.directory)
    os.environ.clear()
    os.environ.update(request.environment)
    tempfile.tempdir = None
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # type: ignore[attr-defined]


def _end_with(pid: int) -> None:
    """End this process when another does, as a child of that one can ask of Linux."""
    other = os.pidfd_open(pid)

    def wait() -> None:
        select.select([other], [], [])
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, daemon=True).start()


def _show(request: Request) -> None:
    """Let `/proc/self/comm`, `cmdline` and `environ` tell what runs here."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, Path(request.argv[0]).name.encode()[:15], 0, 0, 0)
    places = [int(word) for word in Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]]
    variables = [f"{name}={value}" for name, value in request.environment.items()]
    for words, (begin, end) in ((request.argv, places[:2]), (variables, places[2:])):
        told = b"".join(os.fsencode(word) + b"\0" for word in words)
        ctypes.memmove(begin, told[: end - begin - 1].ljust(end - begin, b"\0"), end - begin)


def run(argv: list[str], python_path: str) -> None:
    """Run a program as Python does that begins with it."""
    words = argv[1:] if argv[0] == sys.executable else argv
    module = words[0] == "-m"
    sys.orig_argv = [sys.executable, *words]
    sys.argv = words[module:]
    first = os.getcwd() if module else str(Path(words[0]).resolve().parent)
    sys.path[:0] = [first, *filter(None, python_path.split(os.pathsep))]
    importlib.invalidate_caches()
    if module:
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    main.__dict__.update(__file__=os.path.join(os.getcwd(), words[0]), __builtins__=builtins)
    exec(compile(Path(words[0]).read_bytes(), words[0], "exec"), main.__dict__)


def end(program: Callable[[], None]) -> None:
    """End with a program as Python does, but leave what was imported to the kernel: to free it takes longer than most
    programs work."""
    code: Any = 0
    try:
        program()
    except SystemExit as ended:
        if not isinstance(ended.code, int | None):
            raise
        code = ended.code or 0
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    del sys.path[0]
    if asked := ForkServer(sys.argv[1]).serve():
        end(partial(run, asked.argv, asked.environment.get("PYTHONPATH", "")))
