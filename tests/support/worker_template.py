"""The process of which pytest-xdist's workers are forks: it has imported the tests, and ends with what has forked it.

Run: worker_template.py PATH…, with a listening socket as standard output. Who connects sends three streams; the worker
on them answers with a byte, and holds the connection until its end.
"""

import contextlib
import ctypes
import gc
import os
import signal
import socket
import sys

_PR_SET_PDEATHSIG = 1


class ModulesAlone:
    """A plugin of pytest: it imports the modules of the tests, and looks for no tests in them."""

    def pytest_pycollect_makeitem(self) -> list[object]:
        """What a name of a module stands for: nothing."""
        return []


def worker(paths: list[str]) -> socket.socket:
    """Import the tests, and fork; returns in the workers, each with its connection."""
    import pytest

    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    listener = socket.socket(fileno=os.dup(1))
    os.dup2(0, 1)
    pytest.main(["-n", "0", "-p", "no:cacheprovider", "--collect-only", *paths], plugins=[ModulesAlone()])
    from tests.support.programs import IMPORT_PATH

    IMPORT_PATH[:] = sys.path
    gc.disable()  # as at the import of `tests/conftest.py`, which is not imported again
    signal.signal(signal.SIGCHLD, lambda *_: tell_ends())
    while True:
        connection, _ = listener.accept()
        _, streams, _, _ = socket.recv_fds(connection, 1, 3)
        if not os.fork():
            break
        connection.close()
        for stream in streams:
            os.close(stream)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    listener.close()
    os.setsid()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    connection.send(b" ")
    return connection


def tell_ends() -> None:
    """Print how a worker has ended that did not end well: pytest-xdist only sees that it is gone."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if code := os.waitstatus_to_exitcode(ended[1]):
                print(f"the pytest worker with pid {ended[0]} ended with {code}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    del sys.path[0]
    connection = worker(sys.argv[1:])
    exec(eval(sys.stdin.readline()))  # what execnet has a Python do
