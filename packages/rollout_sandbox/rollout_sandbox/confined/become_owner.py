"""Makes a user namespace that counts for one user id of the host: `python become_owner.py UID`, started by root.

It says `made` once the namespace is there, waits for a line while its parent maps the ids, forbids further user
namespaces in it, says `closed`, and waits for the end of its input. Standard library only.
"""

import ctypes
import os
import sys

CLONE_NEWUSER = 0x10000000
PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP = 28, 4


def require(result: int) -> None:
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def main(uid: int) -> None:
    """Become the user, keeping the capabilities, so that the kernel counts what follows against that user alone."""
    libc = ctypes.CDLL(None, use_errno=True)
    os.setgroups([])
    require(libc.prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0))
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    require(libc.unshare(CLONE_NEWUSER))
    os.write(1, b"made\n")
    sys.stdin.readline()
    with open("/proc/sys/user/max_user_namespaces", "w") as file:
        file.write("0")
    os.write(1, b"closed\n")
    sys.stdin.readline()


if __name__ == "__main__":
    main(int(sys.argv[1]))
