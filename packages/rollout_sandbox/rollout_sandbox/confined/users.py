"""Host user ids of sandboxes, for evaluations that root has started.

The kernel counts processes, descriptors in flight, inotify instances and namespaces by user id, and what is in a user
namespace also against whoever made that: an id is one living sandbox's, by a namespace that was made as that id.
"""

import os
import subprocess
import threading
from dataclasses import dataclass
from pathlib import Path

from rollout_sandbox.confined.interpreter import base_python
from rollout_sandbox.file_lock import private_directory, try_lock

LOCKS = Path("/run/confined-sandbox-users")
"""Ids are the machine's, so their locks are, too."""
INSIDE_ID = 1000
_NOBODY = 65534
_IDS_EACH = 2
_BLOCK_IDS = 256
_BLOCKS = 256
_TIMEOUT_S = 30.0


@dataclass(frozen=True)
class SandboxUser:
    """A leased id: `uid` is also its group's; `namespace` is a descriptor of its user namespace."""

    uid: int
    namespace: int


class UserPool:
    """The ids that this process has leased, in blocks; one that is idle keeps its namespace for the next sandbox."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._lock = threading.Lock()
        self._forget()

    def _forget(self) -> None:
        self._owner = os.getpid()
        self._idle: SandboxUser | None = None
        self._free: list[int] = []

    def take(self) -> SandboxUser:
        """Return an id that no living sandbox has (15 ms, or none). An `OSError`: it cannot be had."""
        with self._lock:
            if self._owner != os.getpid():
                self._forget()  # in a forked process: the ids are its parent's
            if self._idle is not None:
                user, self._idle = self._idle, None
                return user
            if not self._free:
                self._lease()
            uid = self._free.pop()
        try:
            return SandboxUser(uid, _make_namespace(uid))
        except BaseException:
            self._free.append(uid)
            raise

    def _lease(self) -> None:
        """Lock a block of ids, for as long as this process lives."""
        private_directory(LOCKS)
        for block in range(_BLOCKS):
            first = self._first + block * _BLOCK_IDS
            if try_lock(LOCKS / str(first)) is not None:
                self._free = [*range(first, first + _BLOCK_IDS, _IDS_EACH)]
                return
        raise OSError(f"all {_BLOCKS * _BLOCK_IDS} ids from {self._first} are taken (--env.sandbox.first-user)")

    def give_back(self, user: SandboxUser) -> None:
        """Take back an id whose sandbox is gone, with all its processes and files."""
        with self._lock:
            if self._owner != os.getpid():
                return
            if self._idle is None:
                self._idle = user
                return
            self._free.append(user.uid)
        os.close(user.namespace)


def _make_namespace(uid: int) -> int:
    """Return a user namespace in which `uid` is 1000, its neighbour 0 (devpts wants one), and the host's root nobody.

    The host's root is in it for bubblewrap, which reads the root's directories while it sets up.
    """
    argv = [base_python(), "-I", "-S", str(Path(__file__).with_name("become_owner.py")), str(uid)]
    with subprocess.Popen(
        argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1, env={}
    ) as maker:
        assert maker.stdin is not None
        assert maker.stdout is not None
        watchdog = threading.Timer(_TIMEOUT_S, maker.kill)
        watchdog.start()
        try:
            _expect(maker, "made")
            ids = f"0 {uid + 1} 1\n{INSIDE_ID} {uid} 1\n{_NOBODY} 0 1\n"
            for name in ("gid_map", "uid_map"):
                Path("/proc", str(maker.pid), name).write_text(ids)
            maker.stdin.write("mapped\n")
            _expect(maker, "closed")
            return os.open(f"/proc/{maker.pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
        finally:
            watchdog.cancel()
            maker.kill()


def _expect(maker: "subprocess.Popen[str]", word: str) -> None:
    assert maker.stdout is not None
    assert maker.stderr is not None
    if maker.stdout.readline().strip() != word:
        maker.kill()
        raise OSError(f"no user namespace of its own for the sandbox: {maker.stderr.read().strip()[-300:]}")
