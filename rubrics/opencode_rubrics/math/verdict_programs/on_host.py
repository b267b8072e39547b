"""The worker processes of the host: one parent that has everything imported, and its forks.

Invariant: nothing here outlives the process that started it. The parent and each worker are killed by the kernel when
their parent dies, and end by themselves when their socket closes.

control socket (SOCK_SEQPACKET): `fork` with a descriptor → the worker's pid; `end PID` → its exit code, killed first
if it still runs. worker socket (stream): lines of JSON, a request with `reference`, `text`, `source`, `question`,
`unrounded`, `seconds` and `long`, a reply with `verdict` and `seconds`, or `no_reference`; without a reference
`stated`, the answer in `text`. A worker that had a long request weighs half of what others do from then on.
"""

import ctypes
import gc
import json
import os
import signal
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mathverdict.bounded import cpu_deadline, limit_memory
from mathverdict.errors import EmptyReference
from mathverdict.verdict import stated_answer, verify_text

_PR_SET_PDEATHSIG = 1
_HALF = 3
"""By so much nicer (sched(7)): each step takes a fifth."""
_WARM_UP = ((r"\frac{1}{2}+x^2", "x^2+0.5"), (r"2\sqrt{2}", r"\sqrt{8}"), (r"\int_0^1 x\,dx", r"\frac{1}{2}"))


def main(control_fd: int, parent: int) -> None:
    """Serve the control socket until it closes; `parent` is the pid of the process that started this one."""
    _die_with(parent)
    with socket.socket(fileno=control_fd) as control:
        # Grammar tables and caches are made here once and shared by all forks.
        for reference, answer in _WARM_UP:
            verify_text(reference, answer, "file")
        gc.collect()
        gc.freeze()
        control.send(b"ready")
        while True:
            message, fds, _, _ = socket.recv_fds(control, 64, 1)
            if not message:
                os._exit(0)
            if message == b"fork":
                control.send(str(_fork(control, fds[0])).encode())
            else:
                control.send(str(_end(int(message.split()[1]))).encode())


def _die_with(parent: int) -> None:
    if ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0 or os.getppid() != parent:
        os._exit(1)


def _fork(control: socket.socket, fd: int) -> int:
    own = os.getpid()
    pid = os.fork()
    if pid:
        os.close(fd)
        return pid
    code = 1
    try:
        _die_with(own)
        os.close(control.detach())
        limit_memory()
        with socket.socket(fileno=fd) as connection:
            _work(connection)
        code = 0
    finally:
        os._exit(code)


def _end(pid: int) -> int:
    """Exit code of the child `pid`, which gets 0.1 seconds to end by itself."""
    deadline = time.monotonic() + 0.1
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        time.sleep(0.001)


def _work(connection: socket.socket) -> None:
    with connection.makefile("rb") as requests:
        for line in requests:
            request = json.loads(line)
            if request["long"]:
                _halve_weight()
            started = time.perf_counter()
            with cpu_deadline(request["seconds"]):
                reply = _reply(request)
            told = json.dumps({**reply, "seconds": time.perf_counter() - started})
            connection.sendall(told.encode() + b"\n")


def _halve_weight() -> None:
    """Get half of the CPU that others get where there is not enough."""
    os.setsid()
    os.nice(_HALF)
    for _ in range(10):  # for a user who is not root, Linux takes ten of these a second
        try:
            Path("/proc/self/autogroup").write_text(str(_HALF))
        except BlockingIOError:
            time.sleep(0.1)
        except OSError:  # a kernel that does not weigh sessions, which it does elsewhere before all else
            return
        else:
            return


def _reply(request: dict[str, Any]) -> dict[str, object]:
    reference, text, source = request["reference"], request["text"], request["source"]
    if reference is None:
        return {"stated": stated_answer(text, source)}
    told = {name: request[name] for name in ("question", "unrounded")}
    try:
        return {"verdict": asdict(verify_text(reference, text, source, **told))}
    except EmptyReference:
        return {"no_reference": True}
