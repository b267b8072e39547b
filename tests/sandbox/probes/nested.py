"""Try to reach the host from namespaces nested in the sandbox, with all capabilities in them; print what worked."""

import ctypes
import os
from contextlib import suppress

USER_MOUNT_PID_NET = 0x10000000 | 0x00020000 | 0x20000000 | 0x40000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 18


def inside(libc: ctypes.CDLL) -> None:
    libc.mount(None, b"/", None, MS_REC | MS_PRIVATE, None)
    for target in (b"/", b"/usr", b"/etc/passwd", b"/proc", b"/dev"):
        if libc.mount(None, target, None, MS_REMOUNT | MS_BIND, None) == 0:
            print("made writable", target)
        if libc.umount2(target, 2) == 0:
            print("unmounted", target)
    if libc.mount(b"proc", b"/tmp", b"proc", 0, None) == 0:
        with suppress(OSError):
            os.close(os.open("/tmp/sys/kernel/core_pattern", os.O_WRONLY))
            print("opened core_pattern through a fresh /proc")
    with suppress(OSError):
        os.close(os.open("/usr/planted", os.O_WRONLY | os.O_CREAT))
        print("wrote into /usr")


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(USER_MOUNT_PID_NET) != 0:
        print("the nested namespaces were refused, so this proves nothing")
    child = os.fork()
    if child == 0:
        inside(libc)
        os._exit(0)
    os.waitpid(child, 0)


if __name__ == "__main__":
    main()
