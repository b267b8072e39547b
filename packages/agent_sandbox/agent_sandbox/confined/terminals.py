"""A bound on the pseudo-terminals of one sandbox: the kernel counts them for the whole machine.

Invariant: nothing but one system call runs in the sandbox's mount namespace, on a thread that ends with it.
"""

import ctypes
import logging
import os
import threading

logger = logging.getLogger("verifiers.v1.agent_sandbox.confined")

MOST = 32
_CLONE_FS, _CLONE_NEWNS = 0x200, 0x20000
_MS_NOSUID, _MS_NOEXEC, _MS_REMOUNT = 2, 8, 32
_AS_BUBBLEWRAP_MOUNTS = b"ptmxmode=0666,mode=620"


def limit_terminals(process_one: int) -> None:
    """Leave the sandbox of this process 1 `MOST` pseudo-terminals (blocks for less than a millisecond).

    Only root may; another user's sandboxes share the machine's, which the kernel then gives to whoever comes first.
    """
    if os.geteuid() != 0:
        return
    try:
        namespace = os.open(f"/proc/{process_one}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return  # it is gone, which the next request says
    failed: list[str] = []
    try:
        thread = threading.Thread(target=_remount, args=(ctypes.CDLL(None, use_errno=True), namespace, failed))
        thread.start()
        thread.join()
    finally:
        os.close(namespace)
    if failed:
        logger.warning("the pseudo-terminals of a sandbox have no limit of their own (%s)", failed[0])


def _remount(libc: ctypes.CDLL, namespace: int, failed: list[str]) -> None:
    options = b"%s,max=%d" % (_AS_BUBBLEWRAP_MOUNTS, MOST)
    flags = _MS_REMOUNT | _MS_NOSUID | _MS_NOEXEC
    # A thread may enter a mount namespace when it shares its root and work directory with no other.
    if (
        libc.unshare(_CLONE_FS) != 0
        or libc.setns(namespace, _CLONE_NEWNS) != 0
        or libc.mount(None, b"/dev/pts", None, ctypes.c_ulong(flags), options) != 0
    ):
        failed.append(os.strerror(ctypes.get_errno()))
